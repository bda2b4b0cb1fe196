#include "actors/seal_book.hpp"

#include <fmt/format.h>

namespace troupe {

std::string CheckpointParts::problem() const {
  for (const ShardFact& shard : shards)
    if (!shard.problem.empty()) return fmt::format("rank {}: {}", shard.rank.value(), shard.problem);
  return {};
}

std::optional<CheckpointParts> SealBook::add(Step step, ShardFact shard) {
  auto& shards = open_[step];
  const Rank rank = shard.rank;
  shards.emplace(rank, std::move(shard));
  if (shards.size() < ranks_) return std::nullopt;
  CheckpointParts parts{step, {}};
  for (auto& [owner, fact] : shards) parts.shards.push_back(std::move(fact));
  open_.erase(step);
  return parts;
}

}  // namespace troupe
