#pragma once
#include <cstdint>

namespace troupe::cpu {

/// Packing for products of bf16 pairs: panels of `width` items (rows of the left operand, columns of the right), in each the pairs
/// along the inner dimension one after the other, [panel, pair, item] of two bf16 each. What is missing in the last panel and in
/// the last pair is zero.

/// Pairs that a packed operand takes.
[[nodiscard]] constexpr std::int64_t packed_pairs(std::int64_t items, std::int64_t inner, std::int64_t width) {
  return (items + width - 1) / width * width * ((inner + 1) / 2);
}

/// From [items, inner] row-major.
void pack_rows(const std::uint16_t* from, std::int64_t items, std::int64_t inner, std::int64_t width, std::uint32_t* to);
/// From [inner, items] row-major.
void pack_columns(const std::uint16_t* from, std::int64_t items, std::int64_t inner, std::int64_t width, std::uint32_t* to);

}  // namespace troupe::cpu
