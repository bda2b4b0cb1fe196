#include "src/device/cpu/float8.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>

#include "src/device/cpu/arguments.hpp"
#include "src/device/cpu/cpu_kernels.hpp"
#include "src/device/cpu/float8_bits.hpp"
#include "src/device/cpu/float8_parts.hpp"
#include "src/device/cpu/parallel.hpp"
#include "src/device/cpu/vectorise.hpp"

namespace troupe::cpu {
namespace {

/// `count` under 2³².
template <class Format, class T>
TROUPE_VECTORISED Float8PartCounts quantize_part(const T* x, float scale, std::uint8_t* out, std::int64_t count) {
  std::uint32_t beyond = 0, strange = 0;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) out[i] = counted_float8<Format>(widen(x[i]) * scale, beyond, strange);
  return {beyond - strange, strange};
}

template <class Format>
TROUPE_VECTORISED void dequantize_part(const std::uint8_t* codes, BFloat16* out, std::int64_t count) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) out[i].bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(from_float8<Format>(codes[i])) >> 16);
}

/// Magnitudes order as integers, NaN above infinity: the maximum is exact, order-free, and NaN wins.
TROUPE_VECTORISED std::uint32_t largest_magnitude(const float* x, std::int64_t count) {
  std::uint32_t result = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(x[i]) & 0x7fffffffU;
    result = magnitude > result ? magnitude : result;
  }
  return result;
}

TROUPE_VECTORISED std::uint32_t largest_magnitude(const BFloat16* x, std::int64_t count) {
  std::uint16_t result = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto magnitude = static_cast<std::uint16_t>(x[i].bits & 0x7fffU);
    result = magnitude > result ? magnitude : result;
  }
  return static_cast<std::uint32_t>(result) << 16;
}

bool is_float8(DType dtype) { return dtype == DType::e4m3 || dtype == DType::e5m2; }

template <class Format>
void quantize_all(const TensorView& x, float scale, const TensorView& out, Float8Counts* counts) {
  Float8Tally sums;
  in_parallel(x.shape.elements(), elements_a_thread, [&](std::int64_t first, std::int64_t last) {
    auto* codes = out.as<std::uint8_t>() + first;
    sums.add(x.dtype == DType::bf16 ? quantize_part<Format>(x.as<const BFloat16>() + first, scale, codes, last - first)
                                    : quantize_part<Format>(x.as<const float>() + first, scale, codes, last - first));
  });
  sums.add_to(counts);
}

}  // namespace

void dequantize(DType dtype, const std::uint8_t* codes, BFloat16* out, std::int64_t count) {
  in_parallel(count, elements_a_thread, [&](std::int64_t first, std::int64_t last) {
    if (dtype == DType::e4m3) return dequantize_part<E4m3>(codes + first, out + first, last - first);
    dequantize_part<E5m2>(codes + first, out + first, last - first);
  });
}

void CpuKernels::amax(Stream&, TensorView x, float* amax, bool accumulate) {
  const Arguments arguments("amax", "x float32 or bfloat16", {{"x", x}});
  arguments.require(x.dtype == DType::f32 || x.dtype == DType::bf16);
  const std::int64_t count = x.shape.elements();
  const std::uint32_t found = x.dtype == DType::f32 ? largest_magnitude(x.as<const float>(), count) : largest_magnitude(x.as<const BFloat16>(), count);
  const std::uint32_t before = accumulate ? std::bit_cast<std::uint32_t>(*amax) & 0x7fffffffU : 0U;
  *amax = std::bit_cast<float>(std::max(found, before));
}

void CpuKernels::scale_from_amax(Stream&, const float* amax, DType dtype, float* scale) {
  if (!is_float8(dtype)) throw std::invalid_argument("scale_from_amax: expected float8_e4m3 or float8_e5m2; found " + std::string(name_of(dtype)));
  // Divided in fp64 as torchao does. Below the floor, and for zero, the scale is the floor's; an infinite amax gives 0, NaN gives NaN.
  const double largest = static_cast<double>(dtype == DType::e4m3 ? E4m3::largest : E5m2::largest);
  const auto found = static_cast<double>(*amax);
  *scale = static_cast<float>(largest / (found < 1e-12 ? 1e-12 : found));
}

void CpuKernels::quantize(Stream&, TensorView x, const float* scale, TensorView out, Float8Counts* counts) {
  const Arguments arguments("quantize", "x float32 or bfloat16, out float8_e4m3 or float8_e5m2 of the same shape", {{"x", x}, {"out", out}});
  arguments.require(x.shape == out.shape && (x.dtype == DType::f32 || x.dtype == DType::bf16) && is_float8(out.dtype));
  if (out.dtype == DType::e4m3) return quantize_all<E4m3>(x, *scale, out, counts);
  quantize_all<E5m2>(x, *scale, out, counts);
}

}  // namespace troupe::cpu
