#pragma once
#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

#include "src/device/device.hpp"

namespace troupe::cpu {

/// Memory that an operation needs only while it runs. One thread's; grows at first use and is kept, so that a training step
/// allocates nothing once the first one has run.
class Scratch {
 public:
  enum class Use : std::uint8_t { left_codes, right_codes, left, right, product, row };
  /// Room for `count` values of T, uninitialised, valid until the next call with the same use.
  template <class T>
  [[nodiscard]] T* take(Use use, std::int64_t count) {
    return reinterpret_cast<T*>(bytes(use, static_cast<std::size_t>(count) * sizeof(T)).data());
  }

 private:
  [[nodiscard]] std::span<std::byte> bytes(Use use, std::size_t size);
  std::array<std::unique_ptr<Buffer>, 6> buffers_;
};

/// The scratch memory of every thread that calls one Kernels object. Any thread.
class ScratchOfThreads {
 public:
  [[nodiscard]] Scratch& mine();

 private:
  std::mutex mutex_;
  std::map<std::thread::id, Scratch> scratch_;  // nodes do not move
};

}  // namespace troupe::cpu
