#pragma once
#include <algorithm>
#include <cstdint>

namespace troupe {

/// When the host agents' memory takes snapshots, and how many it holds. A value.
struct SnapshotPolicy {
  std::uint32_t keep_every = 0;      ///< steps between two; 0: none
  std::uint32_t rollback_steps = 0;  ///< how far a rollback goes at least ([training.guard]); 0: none does
  std::uint32_t run_ahead = 2;       ///< steps granted past the slowest report

  /// Two, one of which is always sealed. With rollbacks as many as hold, whichever step was told last, the newest that is `rollback_steps` older and
  /// those taken from there up to the newest granted step: multiples of `keep_every` in a stretch of rollback_steps + keep_every + run_ahead steps.
  [[nodiscard]] std::uint32_t slots() const noexcept {
    if (rollback_steps == 0 || keep_every == 0) return 2;
    return std::max(2U, (rollback_steps + keep_every + run_ahead - 1) / keep_every + 1);
  }
};

}  // namespace troupe
