#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

namespace troupe::cpu {

/// eˣ within 2 ulp, in a form that compilers vectorise. Under −104: 0; over 88.73: infinity; NaN stays NaN.
/// Cody and Waite's reduction, x = n ln 2 + r with |r| ≤ ln 2 / 2, and the Taylor polynomial of degree 7.
[[gnu::always_inline]] inline float exponential(float x) {
  constexpr float shift = 12582912.0F;  // 1.5 × 2²³: adding it rounds to an integer
  const float above = x < -104.0F ? -104.0F : x;
  const float inside = above > 89.0F ? 89.0F : above;
  const float shifted = inside * 1.44269504088896341F + shift;
  const float n = shifted - shift;
  const float r = (inside - n * 0.693145751953125F) - n * 1.42860682030941723e-6F;
  float p = 1.0F / 5040;
  p = p * r + 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  // 2ⁿ as two factors, so that subnormal results and 2¹²⁸ come out right.
  const auto k = static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(shifted) - 0x4b400000U);
  const std::int32_t half = k >> 1;
  const auto first = std::bit_cast<float>(static_cast<std::uint32_t>(half + 127) << 23);
  const auto second = std::bit_cast<float>(static_cast<std::uint32_t>(k - half + 127) << 23);
  return p * first * second;
}
inline double exponential(double x) { return std::exp(x); }

}  // namespace troupe::cpu
