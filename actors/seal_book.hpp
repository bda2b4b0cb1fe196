#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/base/ids.hpp"

namespace troupe {

/// One rank's part of a checkpoint, as ShardSaved told it.
struct ShardFact {
  Rank rank;
  std::string file;  ///< relative to the checkpoint's folder
  std::uint64_t bytes = 0, hash = 0;
  std::string problem;  ///< not empty: it could not be written
};

/// The parts of a checkpoint that is being written.
struct CheckpointParts {
  Step step;
  std::vector<ShardFact> shards;  ///< in rank order
  [[nodiscard]] std::string problem() const;  ///< of the first rank that failed; empty: all parts are there
};

/// Collects the parts of checkpoints until all ranks have told theirs. Pure; the Coordinator's handlers only.
class SealBook {
 public:
  explicit SealBook(std::uint32_t ranks) : ranks_(ranks) {}
  /// All parts, once the last has come. A part told twice counts once.
  [[nodiscard]] std::optional<CheckpointParts> add(Step step, ShardFact shard);
  [[nodiscard]] bool pending() const noexcept { return !open_.empty(); }

 private:
  std::uint32_t ranks_;
  std::map<Step, std::map<Rank, ShardFact>> open_;
};

}  // namespace troupe
