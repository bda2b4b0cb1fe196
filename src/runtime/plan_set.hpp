#pragma once
#include <algorithm>

#include "src/runtime/plan.hpp"

namespace troupe {

/// The plans of an epoch, one a step kind. A value; shared read-only by the actors of a rank.
struct PlanSet {
  Plan train;
  Plan train_and_snapshot;  ///< empty: snapshots are never taken
  [[nodiscard]] const Plan& of(StepKind kind) const noexcept { return kind == StepKind::train ? train : train_and_snapshot; }
  /// Operations of the longest.
  [[nodiscard]] std::size_t longest() const noexcept { return std::max(train.operations.size(), train_and_snapshot.operations.size()); }
};

}  // namespace troupe
