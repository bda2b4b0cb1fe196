#include "src/tokenizer/token_table.hpp"

#include <xxhash.h>

#include <bit>

namespace troupe {

void TokenTable::reserve(std::size_t tokens) {
  entries_.reserve(tokens);
  grow(std::bit_ceil(tokens * 2 + 2));
}

void TokenTable::grow(std::size_t slots) {
  slots_.assign(slots, 0);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    std::size_t slot = entries_[i].hash & (slots - 1);
    while (slots_[slot] != 0) slot = (slot + 1) & (slots - 1);
    slots_[slot] = static_cast<std::uint32_t>(i + 1);
  }
}

std::size_t TokenTable::slot_of(std::string_view token, std::uint64_t hash) const noexcept {
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t slot = hash & mask;; slot = (slot + 1) & mask) {
    if (slots_[slot] == 0) return slot;
    const Entry& entry = entries_[slots_[slot] - 1];
    if (entry.hash == hash && std::string_view(bytes_).substr(entry.begin, entry.bytes) == token) return slot;
  }
}

bool TokenTable::add(std::string_view token, std::int32_t id) {
  if (entries_.size() * 2 + 2 > slots_.size()) grow(std::bit_ceil(entries_.size() * 4 + 4));
  const std::uint64_t hash = XXH3_64bits(token.data(), token.size());
  const std::size_t slot = slot_of(token, hash);
  if (slots_[slot] != 0) return false;
  entries_.push_back({hash, bytes_.size(), static_cast<std::uint32_t>(token.size()), id});
  bytes_ += token;
  slots_[slot] = static_cast<std::uint32_t>(entries_.size());
  return true;
}

std::optional<std::int32_t> TokenTable::find(std::string_view token) const noexcept {
  if (slots_.empty()) return std::nullopt;
  const std::size_t slot = slot_of(token, XXH3_64bits(token.data(), token.size()));
  if (slots_[slot] == 0) return std::nullopt;
  return entries_[slots_[slot] - 1].id;
}

void MergeTable::reserve(std::size_t merges) {
  const std::size_t slots = std::bit_ceil(merges * 2 + 2);
  if (slots <= slots_.size()) return;
  const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(slots, Slot{free, {}}));
  mask_ = slots - 1;
  count_ = 0;
  for (const Slot& slot : old)
    if (slot.key != free) add(static_cast<std::int32_t>(slot.key >> 32U), static_cast<std::int32_t>(slot.key & 0xffffffffU), slot.merge);
}

void MergeTable::add(std::int32_t left, std::int32_t right, Merge merge) {
  if (count_ * 2 + 2 > slots_.size()) reserve(count_ * 2 + 2);
  const std::uint64_t key = key_of(left, right);
  std::size_t slot = mix(key) & mask_;
  while (slots_[slot].key != key && slots_[slot].key != free) slot = (slot + 1) & mask_;
  if (slots_[slot].key == free) ++count_;
  slots_[slot] = {key, merge};
}

}  // namespace troupe
