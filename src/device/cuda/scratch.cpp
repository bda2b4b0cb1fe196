#include "src/device/cuda/scratch.hpp"

#include <new>
#include <stdexcept>

#include "src/device/cuda/cuda_stream.hpp"
#include "src/device/cuda/kernels/element.hpp"

namespace troupe::cuda {

ScratchOfStreams::~ScratchOfStreams() {
  for (const auto& [stream, block] : blocks_) (void)cudaFree(block.data);
}

void* ScratchOfStreams::Parts::take_bytes(std::size_t bytes) {
  const std::size_t rounded = (bytes + slack - 1) / slack * slack;
  if (used_ + rounded > size_) throw std::logic_error("a kernel asked for less scratch than it took");
  void* part = begin_ + used_;
  used_ += rounded;
  return part;
}

ScratchOfStreams::Parts ScratchOfStreams::of(cudaStream_t stream, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  Block& block = blocks_[stream];
  if (block.size < bytes) {
    use_device(device_);
    check(cudaFree(block.data), "cudaFree of scratch");  // waits for the device: what used it is over
    bytes_ -= block.size;
    block = {};
    void* grown = nullptr;
    if (const cudaError_t code = cudaMalloc(&grown, bytes); code == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      throw std::bad_alloc();
    } else {
      check(code, "cudaMalloc of scratch");
    }
    block = {static_cast<std::byte*>(grown), bytes};
    bytes_ += bytes;
  }
  return {block.data, block.size};
}

}  // namespace troupe::cuda
