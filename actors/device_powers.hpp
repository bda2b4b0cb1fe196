#pragma once
#include <algorithm>
#include <cstdint>
#include <span>

namespace troupe {

/// What a rank's device is able to; 0 where one does not know it.
struct DevicePowers {
  double peak_flops = 0, peak_flops_fp8 = 0;  ///< dense, per second
  std::uint64_t memory_bytes = 0;
};

/// Of a device of these: the mean of the peaks, as throughput is a mean; the smallest memory. What one does not know is unknown. Pure.
[[nodiscard]] inline DevicePowers common_powers(std::span<const DevicePowers> devices) noexcept {
  if (devices.empty()) return {};
  const auto mean = [devices](double DevicePowers::*part) {
    double sum = 0;
    for (const DevicePowers& device : devices) {
      if (device.*part <= 0) return 0.0;
      sum += device.*part;
    }
    return sum / static_cast<double>(devices.size());
  };
  return {mean(&DevicePowers::peak_flops), mean(&DevicePowers::peak_flops_fp8),
          std::ranges::min_element(devices, {}, &DevicePowers::memory_bytes)->memory_bytes};
}

}  // namespace troupe
