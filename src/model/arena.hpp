#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

/// Something that needs `bytes` from instruction `first` to instruction `last`, both included.
struct Lifetime {
  std::uint32_t first = 0, last = 0;
  std::size_t bytes = 0;
};

/// Places of lifetimes in one block of memory, so that no two that live together overlap. Offsets are multiples of 64.
struct ArenaPlacement {
  std::vector<std::size_t> offsets;  ///< as the lifetimes
  std::size_t bytes = 0;             ///< of the block
  std::size_t peak = 0;              ///< the most that lives at once: a lower bound of `bytes`
  std::uint32_t peak_at = 0;         ///< the first instruction where that is so
};

/// First fit, long lives first and large before small among equals: saved values lie at the bottom, short-lived ones above. Deterministic.
[[nodiscard]] ArenaPlacement place_in_arena(std::span<const Lifetime> lifetimes);

}  // namespace troupe
