#pragma once
#include <bit>
#include <cstdint>

#include "src/device/cpu/bfloat16.hpp"

namespace troupe::cpu {

/// The two fp8 formats of the OCP specification, by what their conversions need.
struct E4m3 {
  static constexpr int mantissa = 3, bias = 7;
  static constexpr float largest = 448.0F;
  static constexpr float rounds_to_largest = 464.0F;  ///< half way to what the next code would be; a tie goes to the even 448
  static constexpr std::uint32_t nan = 0x7f;          ///< the one NaN; no infinity
  static constexpr std::uint32_t special = 0x7f;      ///< codes from here on are not finite
};
struct E5m2 {
  static constexpr int mantissa = 2, bias = 15;
  static constexpr float largest = 57344.0F;
  static constexpr float rounds_to_largest = 61439.996F;  ///< under half way to 65536, to whose even code a tie would go
  static constexpr std::uint32_t nan = 0x7f;
  static constexpr std::uint32_t special = 0x7c;
};

/// Saturates to ±largest, then rounds to nearest even; −0 stays −0, infinity saturates, NaN stays NaN.
template <class Format>
[[gnu::always_inline]] inline std::uint8_t to_float8(float x) {
  constexpr int shift = 23 - Format::mantissa;
  constexpr auto smallest_normal = static_cast<std::uint32_t>(128 - Format::bias) << 23;
  constexpr auto rebias = static_cast<std::uint32_t>(127 - Format::bias) << 23;
  // Its unit in the last place is the format's smallest subnormal, so adding it rounds to a multiple of that.
  constexpr auto magic_bits = static_cast<std::uint32_t>(127 + 1 - Format::bias - Format::mantissa + 23) << 23;
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = (bits >> 24) & 0x80U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  constexpr auto most = std::bit_cast<std::uint32_t>(Format::largest);
  const std::uint32_t clamped = magnitude < most ? magnitude : most;
  const std::uint32_t normal = (clamped + ((1U << (shift - 1)) - 1U) + ((clamped >> shift) & 1U) - rebias) >> shift;
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(clamped) + std::bit_cast<float>(magic_bits)) - magic_bits;
  const std::uint32_t finite = clamped < smallest_normal ? subnormal : normal;
  return static_cast<std::uint8_t>(sign | (magnitude > 0x7f800000U ? Format::nan : finite));
}

/// Exact; also exact in the upper 16 bits, that is, in bf16.
template <class Format>
[[gnu::always_inline]] inline float from_float8(std::uint8_t code) {
  constexpr int shift = 23 - Format::mantissa;
  constexpr auto unit = std::bit_cast<float>(static_cast<std::uint32_t>(127 + 1 - Format::bias - Format::mantissa) << 23);
  const std::uint32_t magnitude = code & 0x7fU;
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x80U) << 24;
  const std::uint32_t normal = (magnitude << shift) + (static_cast<std::uint32_t>(127 - Format::bias) << 23);
  const auto subnormal = std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<std::int32_t>(magnitude)) * unit);
  const std::uint32_t finite = magnitude < (1U << Format::mantissa) ? subnormal : normal;
  const std::uint32_t special = magnitude > Format::special || Format::special == Format::nan ? 0x7fc00000U : 0x7f800000U;
  return std::bit_cast<float>(sign | (magnitude >= Format::special ? special : finite));
}

}  // namespace troupe::cpu
