#include "src/device/cuda/cuda_stream.hpp"

#include <map>
#include <memory>

#include "src/device/cuda/kernels/element.hpp"

namespace troupe::cuda {

void use_device(int device) {
  thread_local int current = -1;
  if (current == device) return;
  check(cudaSetDevice(device), "cudaSetDevice");
  current = device;
}

CudaStream::CudaStream(int device, Priority priority) {
  use_device(device);
  int least = 0, greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, priority == Priority::high ? greatest : least), "cudaStreamCreateWithPriority");
}

CudaStream::~CudaStream() { (void)cudaStreamDestroy(stream_); }

cudaStream_t native_stream(const Stream& stream, int device) {
  use_device(device);
  if (stream.native() != nullptr) return static_cast<cudaStream_t>(stream.native());
  // Left to the process's end: a thread's last act may come after the driver's.
  thread_local std::map<int, CudaStream*> own;
  CudaStream*& found = own[device];
  if (found == nullptr) found = new CudaStream(device, CudaStream::Priority::normal);
  return found->get();
}

}  // namespace troupe::cuda
