#pragma once
#include <cstddef>

namespace troupe {

/// Bytes that a GPU takes for one product of two fp8 matrices with a scale for each row or column: both operands in bf16. The kernels ask for as much
/// (src/device/cuda/line_kernels.cpp), with 512 bytes for the alignment.
[[nodiscard]] constexpr std::size_t line_product_scratch(std::size_t left_elements, std::size_t right_elements) noexcept {
  return 2 * (left_elements + right_elements);
}

}  // namespace troupe
