#pragma once
#include <bit>
#include <cstdint>

namespace troupe::cpu {

/// bfloat16 in memory: the upper half of a float. Arithmetic is done in float.
struct BFloat16 {
  std::uint16_t bits;
};

/// What values of T are computed in: float for float and BFloat16, double for double.
template <class T>
struct Computed {
  using type = T;
};
template <>
struct Computed<BFloat16> {
  using type = float;
};
template <class T>
using Wide = typename Computed<T>::type;

[[gnu::always_inline]] inline float widen(float x) { return x; }
[[gnu::always_inline]] inline double widen(double x) { return x; }
[[gnu::always_inline]] inline float widen(BFloat16 x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16); }

/// Rounds to nearest even; NaN becomes the quiet NaN 0x7fc0, as in torch.
[[gnu::always_inline]] inline void narrow(float x, BFloat16& out) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  out.bits = static_cast<std::uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? 0x7fc0U : rounded);
}
[[gnu::always_inline]] inline void narrow(double x, BFloat16& out) { narrow(static_cast<float>(x), out); }
[[gnu::always_inline]] inline void narrow(float x, float& out) { out = x; }
[[gnu::always_inline]] inline void narrow(double x, float& out) { out = static_cast<float>(x); }
[[gnu::always_inline]] inline void narrow(float x, double& out) { out = static_cast<double>(x); }
[[gnu::always_inline]] inline void narrow(double x, double& out) { out = x; }

}  // namespace troupe::cpu
