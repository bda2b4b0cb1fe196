#include "src/checkpoint/stored_type.hpp"

#include <bit>
#include <cstring>
#include <limits>
#include <stdexcept>

namespace troupe {
namespace {

float from_bf16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16U); }

std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>(bits >> 16U | 0x40U);  // stays not-a-number
  return static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16U & 1U)) >> 16U);
}

float from_f16(std::uint16_t half) {
  const std::uint32_t sign = std::uint32_t{half} >> 15U << 31U, exponent = half >> 10U & 31U, fraction = half & 1023U;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000U | fraction << 13U);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23U | fraction << 13U);
  const float small = static_cast<float>(fraction) * 0x1p-24F;  // subnormal: exact in fp32
  return sign != 0 ? -small : small;
}

std::uint16_t to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 31U << 15U);
  const std::uint32_t size = bits & 0x7fffffffU;
  if (size > 0x7f800000U) return static_cast<std::uint16_t>(sign | 0x7e00U);
  if (size >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);  // 65520 and more round to infinity
  if (size < 0x38800000U) {                                                    // below 2^-14: subnormal, or zero
    // Adding 0.5 puts the last kept bit, 2^-24, at the end of fp32's fraction: the addition rounds.
    const float shifted = std::bit_cast<float>(size) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000U));
  }
  const std::uint32_t rounded = size + 0xfffU + (size >> 13U & 1U) - (112U << 23U);
  return static_cast<std::uint16_t>(sign | rounded >> 13U);
}

template <class From, class To, class Change>
void each(std::span<const std::byte> from, std::span<std::byte> to, Change change) {
  for (std::size_t i = 0; i < from.size() / sizeof(From); ++i) {
    From value;
    std::memcpy(&value, from.data() + i * sizeof(From), sizeof(From));
    const To changed = change(value);
    std::memcpy(to.data() + i * sizeof(To), &changed, sizeof(To));
  }
}

}  // namespace

StoredType stored_as(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32: return StoredType::f32;
    case DType::bf16: return StoredType::bf16;
    case DType::f64: return StoredType::f64;
    case DType::e4m3: return StoredType::e4m3;
    case DType::e5m2: return StoredType::e5m2;
    case DType::i64: return StoredType::i64;
    case DType::i32: return StoredType::i32;
    case DType::u8: break;
  }
  return StoredType::u8;
}

bool convertible(StoredType from, StoredType to) noexcept {
  const auto half = [](StoredType type) { return type == StoredType::bf16 || type == StoredType::f16; };
  return from == to || (from == StoredType::f32 && half(to)) || (half(from) && to == StoredType::f32);
}

float e4m3_value(std::uint8_t code) noexcept {
  const std::uint32_t exponent = code >> 3U & 15U, fraction = code & 7U;
  if (exponent == 15 && fraction == 7) return std::numeric_limits<float>::quiet_NaN();
  const float size = exponent == 0 ? static_cast<float>(fraction) * 0x1p-9F : std::bit_cast<float>((exponent + 120) << 23U | fraction << 20U);
  return (code & 0x80U) != 0 ? -size : size;
}

void convert(std::span<const std::byte> from, StoredType from_type, std::span<std::byte> to, StoredType to_type) {
  if (!convertible(from_type, to_type) || from.size() / size_of(from_type) != to.size() / size_of(to_type))
    throw std::invalid_argument("convert: these types or sizes do not go together");
  if (from_type == to_type) {
    if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
  } else if (to_type == StoredType::bf16) {
    each<float, std::uint16_t>(from, to, to_bf16);
  } else if (to_type == StoredType::f16) {
    each<float, std::uint16_t>(from, to, to_f16);
  } else if (from_type == StoredType::bf16) {
    each<std::uint16_t, float>(from, to, from_bf16);
  } else {
    each<std::uint16_t, float>(from, to, from_f16);
  }
}

}  // namespace troupe
