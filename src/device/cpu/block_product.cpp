#include "src/device/cpu/block_product.hpp"

#include "src/device/cpu/vectorise.hpp"

namespace troupe::cpu {
namespace {

/// Sixteen floats as the compiler's own vector; it splits them where the processor's are shorter.
using Floats = float __attribute__((vector_size(64), aligned(4), may_alias));

constexpr int tile_rows = 8;

TROUPE_INLINE const Floats& at(const float* from) { return *reinterpret_cast<const Floats*>(from); }

/// One tile of 8 rows and 16 × vectors columns, kept in registers.
template <int vectors>
TROUPE_INLINE void multiply_tile(const float* left, std::int64_t left_row, std::int64_t left_step, const float* right, std::int64_t right_step,
                                 std::int64_t inner, float* out, std::int64_t stride, bool accumulate) {
  Floats sums[tile_rows][vectors];
#pragma GCC unroll 8
  for (int r = 0; r < tile_rows; ++r) {
#pragma GCC unroll 2
    for (int c = 0; c < vectors; ++c) sums[r][c] = accumulate ? at(out + r * stride + 16 * c) : Floats{};
  }
  for (std::int64_t n = 0; n < inner; ++n, left += left_step, right += right_step) {
    Floats columns[vectors];
#pragma GCC unroll 2
    for (int c = 0; c < vectors; ++c) columns[c] = at(right + 16 * c);
#pragma GCC unroll 8
    for (int r = 0; r < tile_rows; ++r) {
      const float value = left[r * left_row];
#pragma GCC unroll 2
      for (int c = 0; c < vectors; ++c) sums[r][c] += value * columns[c];
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < tile_rows; ++r) {
#pragma GCC unroll 2
    for (int c = 0; c < vectors; ++c) *reinterpret_cast<Floats*>(out + r * stride + 16 * c) = sums[r][c];
  }
}

}  // namespace

TROUPE_VECTORISED void block_product(const LeftBlock& left, const RightBlock& right, std::int64_t rows, std::int64_t inner, std::int64_t columns, float* out,
                                     std::int64_t stride, bool accumulate) {
  for (std::int64_t c = 0; c < columns; c += block_panel) {
    const float* panel = right.data + c / block_panel * right.panel;
    for (std::int64_t r = 0; r < rows; r += tile_rows) {
      if (columns - c >= block_panel) {
        multiply_tile<2>(left.data + r * left.row, left.row, left.step, panel, right.step, inner, out + r * stride + c, stride, accumulate);
      } else {
        multiply_tile<1>(left.data + r * left.row, left.row, left.step, panel, right.step, inner, out + r * stride + c, stride, accumulate);
      }
    }
  }
}

}  // namespace troupe::cpu
