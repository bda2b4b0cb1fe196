#include "actors/seal_book.hpp"

#include <fmt/format.h>

namespace troupe {

std::string CheckpointParts::problem() const {
  for (const ShardFact& shard : shards)
    if (!shard.problem.empty()) return fmt::format("rank {}: {}", shard.rank.value(), shard.problem);
  return {};
}

void SealBook::add(Step step, ShardFact shard) {
  const Rank rank = shard.rank;
  open_[step].emplace(rank, std::move(shard));
}

std::optional<CheckpointParts> SealBook::take() {
  for (auto entry = open_.begin(); entry != open_.end(); ++entry) {
    const auto tokens = tokens_.find(entry->first);
    if (entry->second.size() < ranks_ || tokens == tokens_.end()) continue;
    CheckpointParts parts{epoch_, entry->first, tokens->second, {}};
    for (auto& [owner, fact] : entry->second) parts.shards.push_back(std::move(fact));
    open_.erase(entry);
    tokens_.erase(tokens);
    return parts;
  }
  return std::nullopt;
}

}  // namespace troupe
