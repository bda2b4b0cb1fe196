#pragma once
#include <algorithm>
#include <array>

#include "src/runtime/plan.hpp"

namespace troupe {

/// The plans of an epoch, one a step kind. A value; shared read-only by the actors of a rank.
struct PlanSet {
  Plan train;
  Plan train_and_snapshot;  ///< empty: snapshots are never taken
  /// Followed by forwards over the validation set; empty: never.
  Plan train_and_evaluate = {}, train_snapshot_and_evaluate = {};
  [[nodiscard]] const Plan& of(StepKind kind) const noexcept {
    return *std::array{&train, &train_and_snapshot, &train_and_evaluate, &train_snapshot_and_evaluate}[static_cast<std::size_t>(kind)];
  }
  /// Operations of the longest.
  [[nodiscard]] std::size_t longest() const noexcept {
    return std::max(std::max(train.operations.size(), train_and_snapshot.operations.size()),
                    std::max(train_and_evaluate.operations.size(), train_snapshot_and_evaluate.operations.size()));
  }
};

}  // namespace troupe
