#pragma once
#include <array>
#include <cstdint>

namespace troupe {

/// The order of `count` documents in one pass over the data: a permutation that is a pure function of (seed, epoch) and takes no
/// memory (a keyed Feistel network over the next power of four, walked until it lands inside). Without shuffling: the identity.
class DocumentOrder {
 public:
  DocumentOrder(std::uint64_t count, std::uint64_t seed, std::uint64_t epoch, bool shuffle) noexcept;
  /// Document at position i < count.
  [[nodiscard]] std::uint64_t at(std::uint64_t i) const noexcept;

 private:
  std::uint64_t count_, half_mask_ = 0;
  unsigned half_bits_ = 0;
  bool shuffle_;
  std::array<std::uint64_t, 6> keys_{};
};

}  // namespace troupe
