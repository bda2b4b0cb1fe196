#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "src/device/tensor_view.hpp"

namespace troupe {

/// What a tensor's values are in a file. More than a device computes with: f16 and most integers only ever lie in files.
enum class StoredType : std::uint8_t { f32, bf16, f16, f64, e4m3, e5m2, i64, i32, u8, u64, u32, i16, u16, i8, boolean };

[[nodiscard]] constexpr std::size_t size_of(StoredType type) noexcept {
  switch (type) {
    case StoredType::f64:
    case StoredType::i64:
    case StoredType::u64: return 8;
    case StoredType::f32:
    case StoredType::i32:
    case StoredType::u32: return 4;
    case StoredType::bf16:
    case StoredType::f16:
    case StoredType::i16:
    case StoredType::u16: return 2;
    default: return 1;
  }
}

/// The type of a file that holds this one bit for bit.
[[nodiscard]] StoredType stored_as(DType dtype) noexcept;

/// Whether `convert` goes from one to the other: equal types, and f32 to and from bf16 and f16.
[[nodiscard]] bool convertible(StoredType from, StoredType to) noexcept;

/// What a code of e4m3 stands for (OCP's e4m3fn: no infinity, 0x7f and 0xff are no number).
[[nodiscard]] float e4m3_value(std::uint8_t code) noexcept;

/// Converts values, rounding to the nearest (ties to even); what is too large for f16 becomes infinity, as PyTorch's `.to(float16)`.
/// `from` and `to` hold the same number of values; they may lie unaligned and must not overlap.
void convert(std::span<const std::byte> from, StoredType from_type, std::span<std::byte> to, StoredType to_type);

}  // namespace troupe
