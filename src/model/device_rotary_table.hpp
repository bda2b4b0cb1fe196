#pragma once
#include "src/device/device.hpp"
#include "src/model/model_description.hpp"

namespace troupe {

/// Puts the table of `settings` into `to`, device memory [seq_len, head_dim / 2, 2] of fp32 or fp64. Main thread; done on return.
void fill_rotary_table(Device& device, const RotarySettings& settings, const TensorView& to);

}  // namespace troupe
