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
  int value = slot.load(std::memory_order_relaxed);
  if (value == 0) {
    check(cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute");
    slot.store(value, std::memory_order_relaxed);
  }
  return value;
}

}  // namespace

int multiprocessors() {
  static std::array<std::atomic<int>, 64> known{};
  return attribute(cudaDevAttrMultiProcessorCount, known);
}

bool hopper() {
  static std::array<std::atomic<int>, 64> known{};
  return attribute(cudaDevAttrComputeCapabilityMajor, known) == 9;
}

}  // namespace troupe::cuda
