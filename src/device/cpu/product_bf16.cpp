#include "src/device/cpu/product_bf16.hpp"

#include <algorithm>
#include <cstring>

#include "src/device/cpu/bfloat16.hpp"
#include "src/device/cpu/pack_bf16.hpp"
#include "src/device/cpu/parallel.hpp"
#include "src/device/cpu/vectorise.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#define TROUPE_BF16_PRODUCTS __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
#endif

namespace troupe::cpu {
namespace {

constexpr std::int64_t tile_rows = 12, tile_columns = 32;  // 24 accumulators of the 32 registers

/// Left rows as pairs of bf16 along the inner dimension: where row r's pair p lies, counted in pairs.
struct LeftPairs {
  const std::uint32_t* data;
  std::int64_t row_stride, pair_stride;
};

#if defined(__x86_64__)
/// tile [rows, 32] = left [rows, pairs × 2] × right [pairs × 2, 32]
template <int rows>
TROUPE_BF16_PRODUCTS void multiply_tile(const LeftPairs& left, const std::uint32_t* right, std::int64_t pairs, float* tile) {
  __m512 sums[rows][2];
#pragma GCC unroll 12
  for (int r = 0; r < rows; ++r) sums[r][0] = sums[r][1] = _mm512_setzero_ps();
  const std::int64_t one = left.row_stride, three = 3 * left.row_stride;
  const std::uint32_t* group[3] = {left.data, left.data + 4 * one, left.data + 8 * one};
  for (std::int64_t p = 0; p < pairs; ++p) {
    const auto right0 = reinterpret_cast<__m512bh>(_mm512_loadu_si512(right));
    const auto right1 = reinterpret_cast<__m512bh>(_mm512_loadu_si512(right + 16));
    right += tile_columns;
#pragma GCC unroll 12
    for (int r = 0; r < rows; ++r) {
      const std::uint32_t* from = group[r / 4] + (r % 4 == 0 ? 0 : r % 4 == 1 ? one : r % 4 == 2 ? 2 * one : three);
      std::int32_t pair;
      std::memcpy(&pair, from, sizeof pair);
      const auto both = reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
      sums[r][0] = _mm512_dpbf16_ps(sums[r][0], both, right0);
      sums[r][1] = _mm512_dpbf16_ps(sums[r][1], both, right1);
    }
#pragma GCC unroll 3
    for (int g = 0; g < (rows + 3) / 4; ++g) group[g] += left.pair_stride;
  }
#pragma GCC unroll 12
  for (int r = 0; r < rows; ++r) {
    _mm512_storeu_ps(tile + r * tile_columns, sums[r][0]);
    _mm512_storeu_ps(tile + r * tile_columns + 16, sums[r][1]);
  }
}

using TileFunction = void (*)(const LeftPairs&, const std::uint32_t*, std::int64_t, float*);
constexpr TileFunction tile_functions[tile_rows + 1] = {nullptr,           multiply_tile<1>,  multiply_tile<2>, multiply_tile<3>, multiply_tile<4>,
                                                        multiply_tile<5>,  multiply_tile<6>,  multiply_tile<7>, multiply_tile<8>, multiply_tile<9>,
                                                        multiply_tile<10>, multiply_tile<11>, multiply_tile<12>};
#endif

/// Writes the tile's valid part to out at `stride` elements a row.
template <class T>
TROUPE_VECTORISED void store_tile(const float* tile, T* out, std::int64_t stride, std::int64_t rows, std::int64_t columns, bool accumulate, float factor) {
  for (std::int64_t r = 0; r < rows; ++r, tile += tile_columns, out += stride) {
    if (accumulate) {
#pragma GCC ivdep
      for (std::int64_t c = 0; c < columns; ++c) narrow(tile[c] * factor + widen(out[c]), out[c]);
    } else {
#pragma GCC ivdep
      for (std::int64_t c = 0; c < columns; ++c) narrow(tile[c] * factor, out[c]);
    }
  }
}

/// Row-major left operands with an even inner dimension are read in place.
LeftPairs pack_left(const Operand& left, std::int64_t rows, std::int64_t inner, Scratch& scratch) {
  const auto* values = left.matrix.as<const std::uint16_t>();
  if (!left.transposed && inner % 2 == 0) return {left.matrix.as<const std::uint32_t>(), inner / 2, 1};
  auto* packed = scratch.take<std::uint32_t>(Scratch::Use::left, packed_pairs(rows, inner, tile_rows));
  left.transposed ? pack_columns(values, rows, inner, tile_rows, packed) : pack_rows(values, rows, inner, tile_rows, packed);
  return {packed, 1, tile_rows};
}

}  // namespace

bool multiplies_bf16() noexcept {
#if defined(__x86_64__)
  static const bool supported = __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  return supported;
#else
  return false;
#endif
}

void multiply_bf16(const Operand& left, const Operand& right, const TensorView& out, bool accumulate, float factor, Scratch& scratch) {
#if defined(__x86_64__)
  const std::int64_t rows = out.shape[0], columns = out.shape[1], inner = left.matrix.shape[left.transposed ? 0 : 1], pairs = (inner + 1) / 2;
  const LeftPairs packed_left = pack_left(left, rows, inner, scratch);
  auto* packed_right = scratch.take<std::uint32_t>(Scratch::Use::right, packed_pairs(columns, inner, tile_columns));
  const auto* right_values = right.matrix.as<const std::uint16_t>();
  // A transposed right operand is [columns, inner] in memory: its rows are the product's columns.
  right.transposed ? pack_rows(right_values, columns, inner, tile_columns, packed_right)
                   : pack_columns(right_values, columns, inner, tile_columns, packed_right);
  const bool in_place = packed_left.pair_stride == 1;
  in_parallel((columns + tile_columns - 1) / tile_columns, 1, [&](std::int64_t first, std::int64_t last) {
    alignas(64) float tile[tile_rows * tile_columns];
    for (std::int64_t panel = first; panel < last; ++panel) {
      const std::int64_t column = panel * tile_columns, width = std::min(tile_columns, columns - column);
      for (std::int64_t row = 0; row < rows; row += tile_rows) {
        const std::int64_t height = std::min(tile_rows, rows - row);
        const LeftPairs from{packed_left.data + row * (in_place ? packed_left.row_stride : pairs), packed_left.row_stride, packed_left.pair_stride};
        tile_functions[height](from, packed_right + panel * pairs * tile_columns, pairs, tile);
        const std::int64_t offset = row * columns + column;
        if (out.dtype == DType::f32) {
          store_tile(tile, out.as<float>() + offset, columns, height, width, accumulate, factor);
        } else {
          store_tile(tile, out.as<BFloat16>() + offset, columns, height, width, accumulate, factor);
        }
      }
    }
  });
#else
  static_cast<void>(left), static_cast<void>(right), static_cast<void>(out), static_cast<void>(accumulate), static_cast<void>(factor);
  static_cast<void>(scratch);
#endif
}

}  // namespace troupe::cpu
