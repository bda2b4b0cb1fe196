#pragma once
#include <cstdint>

#include "src/device/cpu/bfloat16.hpp"
#include "src/device/tensor_view.hpp"

namespace troupe::cpu {

/// out[i] = the value of codes[i], exactly. dtype: e4m3 or e5m2.
void dequantize(DType dtype, const std::uint8_t* codes, BFloat16* out, std::int64_t count);

}  // namespace troupe::cpu
