#include <array>
#include <atomic>

#include "src/device/cuda/kernels/element.hpp"

namespace troupe::cuda {
namespace {

/// An attribute of the current device, remembered: the answer never changes.
int attribute(cudaDeviceAttr which, std::array<std::atomic<int>, 64>& known) {
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  std::atomic<int>& slot = known.at(static_cast<std::size_t>(device));
  const int remembered = slot.load(std::memory_order_relaxed);  // one more than the value; 0: not asked yet
  if (remembered != 0) return remembered - 1;
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute");
  slot.store(value + 1, std::memory_order_relaxed);
  return value;
}

}  // namespace

int multiprocessors() {
  static std::array<std::atomic<int>, 64> known{};
  return attribute(cudaDevAttrMultiProcessorCount, known);
}

int compute_capability() {
  static std::array<std::atomic<int>, 64> major{}, minor{};
  return attribute(cudaDevAttrComputeCapabilityMajor, major) * 10 + attribute(cudaDevAttrComputeCapabilityMinor, minor);
}

}  // namespace troupe::cuda
