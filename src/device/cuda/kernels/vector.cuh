#pragma once
// Eight elements at a time: 16 bytes of bf16, 32 of fp32. Device code only.
#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "src/device/cuda/kernels/element.hpp"

namespace troupe::cuda {

using BFloat16 = __nv_bfloat16;
inline constexpr int lanes = 32;
inline constexpr int width = 8;  ///< elements of a vector

__device__ inline float widen(float x) { return x; }
__device__ inline float widen(BFloat16 x) { return __bfloat162float(x); }
__device__ inline double widen(double x) { return x; }
template <class T>
__device__ T narrow(float x);
template <>
__device__ inline float narrow<float>(float x) {
  return x;
}
template <>
__device__ inline BFloat16 narrow<BFloat16>(float x) {
  return __float2bfloat16_rn(x);
}

/// Eight elements as they lie in memory, so that loads in flight take few registers.
template <class T>
struct Packed;
template <>
struct Packed<BFloat16> {
  uint4 words;
};
template <>
struct Packed<float> {
  float4 low, high;
};

template <class T>
__device__ Packed<T> load8(const T* from);
template <>
__device__ inline Packed<BFloat16> load8(const BFloat16* from) {
  return {*reinterpret_cast<const uint4*>(from)};
}
template <>
__device__ inline Packed<float> load8(const float* from) {
  return {reinterpret_cast<const float4*>(from)[0], reinterpret_cast<const float4*>(from)[1]};
}
/// One 16-byte store, said in assembly because the compiler splits a vector whose words it made one by one into four stores (seen with nvcc 13.0
/// where the words come out of branches), which takes four times the sectors.
__device__ inline void store16(void* to, std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
__device__ inline void store8(BFloat16* to, const Packed<BFloat16>& value) { store16(to, value.words.x, value.words.y, value.words.z, value.words.w); }
__device__ inline void store8(float* to, const Packed<float>& value) {
  const float4 &low = value.low, &high = value.high;
  store16(to, __float_as_uint(low.x), __float_as_uint(low.y), __float_as_uint(low.z), __float_as_uint(low.w));
  store16(to + 4, __float_as_uint(high.x), __float_as_uint(high.y), __float_as_uint(high.z), __float_as_uint(high.w));
}
template <class T>
__device__ Packed<T> zero8();
template <>
__device__ inline Packed<BFloat16> zero8() {
  return {make_uint4(0, 0, 0, 0)};
}
template <>
__device__ inline Packed<float> zero8() {
  return {make_float4(0, 0, 0, 0), make_float4(0, 0, 0, 0)};
}

/// A bf16 is the upper half of an fp32.
__device__ inline void unpack(const Packed<BFloat16>& value, float (&out)[width]) {
  const std::uint32_t words[4] = {value.words.x, value.words.y, value.words.z, value.words.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    out[2 * i] = __uint_as_float(words[i] << 16);
    out[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000U);
  }
}
__device__ inline void unpack(const Packed<float>& value, float (&out)[width]) {
  out[0] = value.low.x, out[1] = value.low.y, out[2] = value.low.z, out[3] = value.low.w;
  out[4] = value.high.x, out[5] = value.high.y, out[6] = value.high.z, out[7] = value.high.w;
}

template <class T>
__device__ Packed<T> pack(const float (&value)[width]);
template <>
__device__ inline Packed<BFloat16> pack(const float (&value)[width]) {
  std::uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(value[2 * i], value[2 * i + 1]);
    words[i] = *reinterpret_cast<const std::uint32_t*>(&pair);
  }
  return {make_uint4(words[0], words[1], words[2], words[3])};
}
template <>
__device__ inline Packed<float> pack(const float (&value)[width]) {
  return {make_float4(value[0], value[1], value[2], value[3]), make_float4(value[4], value[5], value[6], value[7])};
}

/// What a reader of the stored element will see.
template <class T>
__device__ float rounded(float x) {
  return widen(narrow<T>(x));
}

/// fp8 formats: the largest finite value and the hardware's name.
template <Element E>
struct Float8;
template <>
struct Float8<Element::e4m3> {
  static constexpr float largest = 448.0F;
  static constexpr __nv_fp8_interpretation_t format = __NV_E4M3;
};
template <>
struct Float8<Element::e5m2> {
  static constexpr float largest = 57344.0F;
  static constexpr __nv_fp8_interpretation_t format = __NV_E5M2;
};

/// Four codes in one word, the first in the lowest byte: saturated, nearest even, NaN stays NaN.
template <Element E>
__device__ std::uint32_t to_float8(float a, float b, float c, float d) {
  const std::uint32_t low = __nv_cvt_float2_to_fp8x2(make_float2(a, b), __NV_SATFINITE, Float8<E>::format);
  const std::uint32_t high = __nv_cvt_float2_to_fp8x2(make_float2(c, d), __NV_SATFINITE, Float8<E>::format);
  return low | (high << 16);
}
template <Element E>
__device__ std::uint8_t to_float8(float a) {
  return static_cast<std::uint8_t>(__nv_cvt_float_to_fp8(a, __NV_SATFINITE, Float8<E>::format));
}
template <Element E>
__device__ float from_float8(std::uint8_t code) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(code, Float8<E>::format)));
}

/// Magnitudes order as integers, NaN above infinity: a maximum over them is exact, free of order, and NaN wins.
__device__ inline std::uint32_t magnitude(float x) { return __float_as_uint(x) & 0x7fffffffU; }
template <class T>
__device__ std::uint32_t largest_magnitude(const Packed<T>& value) {
  float v[width];
  unpack(value, v);
  std::uint32_t found = 0;
#pragma unroll
  for (float element : v) found = max(found, magnitude(element));
  return found;
}

/// fmax / max(amax, 1e-12), divided in fp64 as torchao does; an infinite amax gives 0, NaN gives NaN.
__device__ inline float scale_of(float amax, float largest) {
  const double found = static_cast<double>(amax);
  return static_cast<float>(static_cast<double>(largest) / (found < 1e-12 ? 1e-12 : found));
}

}  // namespace troupe::cuda
