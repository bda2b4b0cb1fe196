#include "src/data/document_order.hpp"

#include <bit>

namespace troupe {
namespace {

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): every input bit moves every output bit.
constexpr std::uint64_t mix(std::uint64_t x) noexcept {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

}  // namespace

DocumentOrder::DocumentOrder(std::uint64_t count, std::uint64_t seed, std::uint64_t epoch, bool shuffle) noexcept
    : count_(count), shuffle_(shuffle && count > 1) {
  const auto bits = static_cast<unsigned>(std::bit_width(count > 0 ? count - 1 : 0));
  half_bits_ = bits < 2 ? 1U : (bits + 1) / 2;
  half_mask_ = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t state = mix(mix(seed) ^ (epoch * 0xd1342543de82ef95U + 1));
  for (auto& key : keys_) key = state = mix(state);
}

std::uint64_t DocumentOrder::at(std::uint64_t i) const noexcept {
  if (!shuffle_) return i;
  do {
    std::uint64_t left = i >> half_bits_, right = i & half_mask_;
    for (const auto key : keys_) {
      const std::uint64_t next = left ^ (mix(right ^ key) & half_mask_);
      left = right;
      right = next;
    }
    i = left << half_bits_ | right;
  } while (i >= count_);
  return i;
}

}  // namespace troupe
