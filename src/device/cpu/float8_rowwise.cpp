#include <algorithm>
#include <bit>

#include "src/device/cpu/arguments.hpp"
#include "src/device/cpu/cpu_kernels.hpp"
#include "src/device/cpu/float8_parts.hpp"
#include "src/device/cpu/parallel.hpp"
#include "src/device/cpu/vectorise.hpp"

namespace troupe::cpu {
namespace {

/// The sign bit away: magnitudes order as integers, NaN above infinity.
template <class T>
TROUPE_INLINE std::uint32_t magnitude_of(T x) {
  return std::bit_cast<std::uint32_t>(widen(x)) & 0x7fffffffU;
}

template <class T>
TROUPE_VECTORISED std::uint32_t largest_of_row(const T* x, std::int64_t count) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i) largest = std::max(largest, magnitude_of(x[i]));
  return largest;
}

/// Columns [first, last) of x [rows, columns] into scales, as magnitudes.
template <class T>
TROUPE_VECTORISED void largest_of_columns(const T* x, std::int64_t rows, std::int64_t columns, std::int64_t first, std::int64_t last, std::uint32_t* largest) {
  std::fill(largest + first, largest + last, 0U);
  for (std::int64_t r = 0; r < rows; ++r, x += columns) {
#pragma GCC ivdep
    for (std::int64_t c = first; c < last; ++c) largest[c] = std::max(largest[c], magnitude_of(x[c]));
  }
}

/// 2^⌊log2(fmax / max(amax, 1e-12))⌋, exactly: the quotient in fp32 without its mantissa. An infinite amax gives 0, NaN gives NaN.
float power_from(std::uint32_t amax_bits, float largest) {
  const auto amax = static_cast<double>(std::bit_cast<float>(amax_bits));
  const auto scale = static_cast<float>(static_cast<double>(largest) / (amax < 1e-12 ? 1e-12 : amax));
  const auto bits = std::bit_cast<std::uint32_t>(scale);
  return bits >= 0x7f800000U ? scale : std::bit_cast<float>(bits & 0x7f800000U);
}

template <class Format, class T>
TROUPE_VECTORISED Float8PartCounts cast_row(const T* x, float scale, std::uint8_t* out, std::int64_t count) {
  std::uint32_t beyond = 0, strange = 0;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) out[i] = counted_float8<Format>(widen(x[i]) * scale, beyond, strange);
  return {beyond - strange, strange};
}

template <class Format, class T>
TROUPE_VECTORISED Float8PartCounts cast_by_columns(const T* x, const float* scales, std::uint8_t* out, std::int64_t count) {
  std::uint32_t beyond = 0, strange = 0;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) out[i] = counted_float8<Format>(widen(x[i]) * scales[i], beyond, strange);
  return {beyond - strange, strange};
}

template <class Format, class T>
void by_rows(const T* x, std::int64_t rows, std::int64_t columns, float* scales, std::uint8_t* out, Float8Tally& tally) {
  in_parallel(rows, rows_a_thread(columns), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) {
      scales[r] = power_from(largest_of_row(x + r * columns, columns), Format::largest);
      tally.add(cast_row<Format>(x + r * columns, scales[r], out + r * columns, columns));
    }
  });
}

template <class Format, class T>
void by_columns(const T* x, std::int64_t rows, std::int64_t columns, float* scales, std::uint8_t* out, Float8Tally& tally) {
  auto* const largest = reinterpret_cast<std::uint32_t*>(scales);
  in_parallel(columns, rows_a_thread(rows), [&](std::int64_t first, std::int64_t last) {
    largest_of_columns(x, rows, columns, first, last, largest);
    for (std::int64_t c = first; c < last; ++c) scales[c] = power_from(largest[c], Format::largest);
  });
  in_parallel(rows, rows_a_thread(columns), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) tally.add(cast_by_columns<Format>(x + r * columns, scales, out + r * columns, columns));
  });
}

template <class Format, class T>
void cast_all(const T* x, const Shape& shape, Float8Scaling by, float* scales, std::uint8_t* out, Float8Counts* counts) {
  Float8Tally tally;
  switch (by) {
    case Float8Scaling::rows: by_rows<Format>(x, shape[0], shape[1], scales, out, tally); break;
    case Float8Scaling::columns: by_columns<Format>(x, shape[0], shape[1], scales, out, tally); break;
    case Float8Scaling::tensor: {
      *scales = power_from(largest_of_row(x, shape.elements()), Format::largest);
      in_parallel(shape.elements(), elements_a_thread,
                  [&](std::int64_t first, std::int64_t last) { tally.add(cast_row<Format>(x + first, *scales, out + first, last - first)); });
    }
  }
  tally.add_to(counts);
}

std::int64_t scales_of(const Shape& shape, Float8Scaling by) { return by == Float8Scaling::rows ? shape[0] : by == Float8Scaling::columns ? shape[1] : 1; }

}  // namespace

void CpuKernels::quantize_by_powers(Stream&, TensorView x, Float8Scaling by, TensorView scales, TensorView out, Float8Counts* counts) {
  const Arguments arguments("quantize_by_powers",
                            "x [R,C] float32 or bfloat16, scales [R] by rows, [C] by columns or [1], float32, out float8_e4m3 or float8_e5m2 as x",
                            {{"x", x}, {"scales", scales}, {"out", out}});
  arguments.require(x.shape.rank == 2 && x.shape == out.shape && (x.dtype == DType::f32 || x.dtype == DType::bf16));
  arguments.require((out.dtype == DType::e4m3 || out.dtype == DType::e5m2) && scales.dtype == DType::f32 && scales.shape == Shape{scales_of(x.shape, by)});
  const auto run = [&]<class Format>(Type<Format>) {
    auto* codes = out.as<std::uint8_t>();
    if (x.dtype == DType::bf16) return cast_all<Format>(x.as<const BFloat16>(), x.shape, by, scales.as<float>(), codes, counts);
    cast_all<Format>(x.as<const float>(), x.shape, by, scales.as<float>(), codes, counts);
  };
  if (out.dtype == DType::e4m3) return run(Type<E4m3>{});
  run(Type<E5m2>{});
}

}  // namespace troupe::cpu
