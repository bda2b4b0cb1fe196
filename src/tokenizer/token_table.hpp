#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// Byte strings and their ids, found in one look-up. Immutable after filling: any thread.
class TokenTable {
 public:
  void reserve(std::size_t tokens);
  /// False: the string is there already; it keeps the id that it has.
  bool add(std::string_view token, std::int32_t id);
  [[nodiscard]] std::optional<std::int32_t> find(std::string_view token) const noexcept;
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }

 private:
  struct Entry {
    std::uint64_t hash;
    std::uint64_t begin;
    std::uint32_t bytes;
    std::int32_t id;
  };
  [[nodiscard]] std::size_t slot_of(std::string_view token, std::uint64_t hash) const noexcept;
  void grow(std::size_t slots);
  std::string bytes_;
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> slots_;  ///< index into entries_, plus 1; 0: free. A power of two, at most half full
};

/// Pairs of ids and what they merge to. Immutable after filling: any thread.
class MergeTable {
 public:
  struct Merge {
    std::uint32_t rank = none;
    std::int32_t id = 0;
  };
  static constexpr std::uint32_t none = 0xffffffffU;
  void reserve(std::size_t merges);
  /// A pair that is given again takes the later rank.
  void add(std::int32_t left, std::int32_t right, Merge merge);
  /// rank is `none` where the pair does not merge.
  [[nodiscard]] Merge find(std::int32_t left, std::int32_t right) const noexcept {
    const std::uint64_t key = key_of(left, right);
    for (std::size_t slot = mix(key) & mask_;; slot = (slot + 1) & mask_) {
      if (slots_[slot].key == key) return slots_[slot].merge;
      if (slots_[slot].key == free) return {};
    }
  }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }

 private:
  struct Slot {
    std::uint64_t key;
    Merge merge;
  };
  static constexpr std::uint64_t free = ~std::uint64_t{0};
  static std::uint64_t key_of(std::int32_t left, std::int32_t right) noexcept {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32U | static_cast<std::uint32_t>(right);
  }
  static std::size_t mix(std::uint64_t key) noexcept {
    key *= 0x9e3779b97f4a7c15U;  // Fibonacci hashing
    return static_cast<std::size_t>(key ^ key >> 32U);
  }
  std::vector<Slot> slots_ = std::vector<Slot>(2, Slot{free, {}});
  std::size_t mask_ = 1, count_ = 0;
};

}  // namespace troupe
