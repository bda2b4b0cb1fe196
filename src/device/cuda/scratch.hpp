#pragma once
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

namespace troupe::cuda {

/// Device memory that kernels use within one call, one block a stream: it grows in the first steps and is then kept, so that a steady
/// step allocates nothing. What a call was given is free for the next call on the same stream.
class ScratchOfStreams {
 public:
  explicit ScratchOfStreams(int device) : device_(device) {}
  ~ScratchOfStreams();
  ScratchOfStreams(const ScratchOfStreams&) = delete;
  ScratchOfStreams& operator=(const ScratchOfStreams&) = delete;

  /// The parts of one call, each 256-byte aligned.
  class Parts {
   public:
    template <class T>
    [[nodiscard]] T* take(std::size_t count) {
      return static_cast<T*>(take_bytes(count * sizeof(T)));
    }

   private:
    friend class ScratchOfStreams;
    Parts(std::byte* begin, std::size_t size) : begin_(begin), size_(size) {}
    void* take_bytes(std::size_t bytes);
    std::byte* begin_;
    std::size_t size_, used_ = 0;
  };
  /// Room for `bytes` in all; add `slack` a part for the alignment. Throws std::bad_alloc.
  [[nodiscard]] Parts of(cudaStream_t stream, std::size_t bytes);
  static constexpr std::size_t slack = 256;
  /// Held now, over all streams. Any thread.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  struct Block {
    std::byte* data = nullptr;
    std::size_t size = 0;
  };
  const int device_;
  std::mutex mutex_;
  std::map<cudaStream_t, Block> blocks_;
  std::atomic<std::size_t> bytes_{0};
};

}  // namespace troupe::cuda
