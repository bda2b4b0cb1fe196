#pragma once
#include <cuda_runtime_api.h>

#include "src/device/lane.hpp"

namespace troupe::cuda {

/// Makes `device` the calling thread's, once a thread: CUDA keeps the current device by thread. Throws CudaError.
void use_device(int device);

/// An owned stream that does not wait for the legacy one. High priority: its kernels go before those of other streams.
class CudaStream final : public Stream {
 public:
  enum class Priority { normal, high };
  CudaStream(int device, Priority priority);
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  [[nodiscard]] void* native() const noexcept override { return stream_; }
  [[nodiscard]] cudaStream_t get() const noexcept { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// The stream behind `stream`: its own, or, for a lane that is a thread of the host, one that belongs to the calling thread.
[[nodiscard]] cudaStream_t native_stream(const Stream& stream, int device);

}  // namespace troupe::cuda
