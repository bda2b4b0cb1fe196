#include "src/model/device_rotary_table.hpp"

#include <span>
#include <vector>

namespace troupe {

void fill_rotary_table(Device& device, const RotarySettings& settings, const TensorView& to) {
  const std::vector<double> table = rotary_table(settings, to.shape[0]);
  if (to.dtype == DType::f64) return device.upload_now(std::as_bytes(std::span(table)), bytes_of(to));
  const std::vector<float> rounded(table.begin(), table.end());
  device.upload_now(std::as_bytes(std::span(rounded)), bytes_of(to));
}

}  // namespace troupe
