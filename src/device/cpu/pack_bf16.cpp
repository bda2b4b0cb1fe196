#include "src/device/cpu/pack_bf16.hpp"

#include <algorithm>
#include <cstring>

#include "src/device/cpu/parallel.hpp"
#include "src/device/cpu/vectorise.hpp"

#if defined(__x86_64__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"  // g++ 12 warns of its own _mm512_undefined_epi32
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif

namespace troupe::cpu {
namespace {

#if defined(__x86_64__)
/// 16 × 16 values of 32 bits: to[c][r] = from[r][c]; strides in values. Four rounds that swap halves of growing size.
__attribute__((target("avx512f"))) void transpose_block(const std::uint16_t* from, std::int64_t from_stride, std::uint32_t* to, std::int64_t to_stride) {
  __m512i a[16], b[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) a[i] = _mm512_loadu_si512(from + i * from_stride);
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
    a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
    a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
    a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
  }
  // a[4g + j], lane l: columns 4l + j of rows 4g … 4g + 3.
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    b[j] = _mm512_shuffle_i32x4(a[j], a[4 + j], 0x88);           // lanes 0, 2 of groups 0, 1
    b[4 + j] = _mm512_shuffle_i32x4(a[8 + j], a[12 + j], 0x88);  // lanes 0, 2 of groups 2, 3
    b[8 + j] = _mm512_shuffle_i32x4(a[j], a[4 + j], 0xdd);       // lanes 1, 3
    b[12 + j] = _mm512_shuffle_i32x4(a[8 + j], a[12 + j], 0xdd);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    _mm512_storeu_si512(to + j * to_stride, _mm512_shuffle_i32x4(b[j], b[4 + j], 0x88));
    _mm512_storeu_si512(to + (4 + j) * to_stride, _mm512_shuffle_i32x4(b[8 + j], b[12 + j], 0x88));
    _mm512_storeu_si512(to + (8 + j) * to_stride, _mm512_shuffle_i32x4(b[j], b[4 + j], 0xdd));
    _mm512_storeu_si512(to + (12 + j) * to_stride, _mm512_shuffle_i32x4(b[8 + j], b[12 + j], 0xdd));
  }
}
#endif

std::uint32_t pair_at(const std::uint16_t* row, std::int64_t pair, std::int64_t inner) {
  const std::uint32_t low = row[2 * pair], high = 2 * pair + 1 < inner ? row[2 * pair + 1] : 0U;
  return low | high << 16;
}

/// Items [first, last) of one panel, pairs [begin, end).
void pack_some_rows(const std::uint16_t* from, std::int64_t inner, std::int64_t width, std::uint32_t* to, std::int64_t first, std::int64_t last,
                    std::int64_t begin, std::int64_t end) {
  for (std::int64_t item = first; item < last; ++item) {
    for (std::int64_t pair = begin; pair < end; ++pair) to[pair * width + item] = pair_at(from + item * inner, pair, inner);
  }
}

void pack_row_panel(const std::uint16_t* from, std::int64_t items, std::int64_t inner, std::int64_t width, std::uint32_t* to) {
  const std::int64_t pairs = (inner + 1) / 2;
  std::int64_t packed = 0;
#if defined(__x86_64__)
  const std::int64_t whole = inner / 32 * 16;  // pairs in whole blocks
  for (; width % 16 == 0 && packed + 16 <= items; packed += 16) {
    for (std::int64_t pair = 0; pair < whole; pair += 16) transpose_block(from + packed * inner + 2 * pair, inner, to + pair * width + packed, width);
    pack_some_rows(from, inner, width, to, packed, packed + 16, whole, pairs);
  }
#endif
  pack_some_rows(from, inner, width, to, packed, items, 0, pairs);
  for (std::int64_t pair = 0; items < width && pair < pairs; ++pair) std::fill(to + pair * width + items, to + (pair + 1) * width, 0U);
}

template <std::int64_t width>
TROUPE_VECTORISED void pack_whole_column_panel(const std::uint16_t* from, std::int64_t stride, std::int64_t inner, std::uint32_t* to) {
  for (std::int64_t k = 0; k + 2 <= inner; k += 2, to += width) {
    const std::uint16_t* low = from + k * stride;
    const std::uint16_t* high = low + stride;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < width; ++i) to[i] = static_cast<std::uint32_t>(low[i]) | static_cast<std::uint32_t>(high[i]) << 16;
  }
  if (inner % 2 != 0) {
    for (std::int64_t i = 0; i < width; ++i) to[i] = from[(inner - 1) * stride + i];
  }
}

void pack_column_panel(const std::uint16_t* from, std::int64_t stride, std::int64_t items, std::int64_t inner, std::int64_t width, std::uint32_t* to) {
  if (items == width && width == 32) return pack_whole_column_panel<32>(from, stride, inner, to);
  if (items == width && width == 12) return pack_whole_column_panel<12>(from, stride, inner, to);
  for (std::int64_t k = 0; k < inner; k += 2, to += width) {
    for (std::int64_t i = 0; i < items; ++i) {
      const std::uint32_t high = k + 1 < inner ? from[(k + 1) * stride + i] : 0U;
      to[i] = from[k * stride + i] | high << 16;
    }
    std::fill(to + items, to + width, 0U);
  }
}

}  // namespace

void pack_rows(const std::uint16_t* from, std::int64_t items, std::int64_t inner, std::int64_t width, std::uint32_t* to) {
  const std::int64_t pairs = (inner + 1) / 2;
  in_parallel((items + width - 1) / width, rows_a_thread(width * inner), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t panel = first; panel < last; ++panel) {
      pack_row_panel(from + panel * width * inner, std::min(width, items - panel * width), inner, width, to + panel * width * pairs);
    }
  });
}

void pack_columns(const std::uint16_t* from, std::int64_t items, std::int64_t inner, std::int64_t width, std::uint32_t* to) {
  const std::int64_t pairs = (inner + 1) / 2;
  in_parallel((items + width - 1) / width, rows_a_thread(width * inner), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t panel = first; panel < last; ++panel) {
      pack_column_panel(from + panel * width, items, std::min(width, items - panel * width), inner, width, to + panel * width * pairs);
    }
  });
}

}  // namespace troupe::cpu
