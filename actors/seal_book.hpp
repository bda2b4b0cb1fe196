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
  EpochId epoch;
  Step step;
  std::uint64_t total_tokens = 0;             ///< valid tokens since step 1, this step included
  std::vector<ShardFact> shards;              ///< in rank order
  [[nodiscard]] std::string problem() const;  ///< of the first rank that failed; empty: all parts are there
};

/// Collects the parts of checkpoints until all ranks have told theirs and the step is reported. Pure; the Coordinator's handlers only.
class SealBook {
 public:
  SealBook(EpochId epoch, std::uint32_t ranks) : epoch_(epoch), ranks_(ranks) {}
  /// A part told twice counts once.
  void add(Step step, ShardFact shard);
  /// What a step's record says of it; a checkpoint is complete when all parts and this are known.
  void reported(Step step, std::uint64_t total_tokens) { tokens_[step] = total_tokens; }
  /// The next complete checkpoint, once.
  [[nodiscard]] std::optional<CheckpointParts> take();

 private:
  EpochId epoch_;
  std::uint32_t ranks_;
  std::map<Step, std::uint64_t> tokens_;
  std::map<Step, std::map<Rank, ShardFact>> open_;
};

}  // namespace troupe
