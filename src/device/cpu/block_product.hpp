#pragma once
#include <cstdint>

namespace troupe::cpu {

/// The left operand of a block product: element (r, n) is data[r × row + n × step].
struct LeftBlock {
  const float* data;
  std::int64_t row, step;
};
/// The right operand: element (n, 32 p + c), c < 32, is data[p × panel + n × step + c].
struct RightBlock {
  const float* data;
  std::int64_t panel, step;
};

inline constexpr std::int64_t block_panel = 32;  ///< columns of a panel

/// out [rows, columns] (+)= left [rows, inner] right [inner, columns] in fp32; rows a multiple of 8, columns of 16;
/// out's rows lie `stride` floats apart.
void block_product(const LeftBlock& left, const RightBlock& right, std::int64_t rows, std::int64_t inner, std::int64_t columns, float* out, std::int64_t stride,
                   bool accumulate);

}  // namespace troupe::cpu
