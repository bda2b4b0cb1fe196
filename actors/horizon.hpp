#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "actors/epoch_decision.hpp"

namespace troupe {

/// Which step is what, whoever runs it.
struct StepPolicy {
  Step last_step;                             ///< of the run
  std::function<Step(Step)> last_at;          ///< pure: the same, as it holds when this step is granted; empty: it never changes
  std::uint32_t run_ahead = 2;                ///< steps granted past the slowest report
  std::function<double(Step)> learning_rate;  ///< pure
  std::function<bool(Step)> snapshot_due;     ///< pure: a checkpoint is written after this step
  std::function<bool(Step)> evaluation_due;   ///< pure: the validation set is evaluated after this step; empty: never
  bool wait_for_saves = false;                ///< no step is granted while a checkpoint is being written
  bool save_at_stop = true;                   ///< a stop on request writes a checkpoint
};

/// The steps that ranks may begin. A step that was never granted never begins, so a change takes effect at `granted() + 1`: everywhere
/// at the same step. Pure; the Coordinator's handlers only.
class HorizonBook {
 public:
  HorizonBook(StepPolicy policy, Step before_first) : policy_(std::move(policy)), granted_(before_first) {}
  /// What may be granted now that all ranks have reported `slowest`; empty when nothing new. `saving`: a checkpoint of a granted step is
  /// neither sealed nor given up. `limit`: no step past it.
  [[nodiscard]] std::vector<StepGrant> advance(Step slowest, bool saving = false, Step limit = Step{std::numeric_limits<Step::Value>::max()});
  /// Waits for a checkpoint, with nothing to do meanwhile?
  [[nodiscard]] bool waits(Step slowest, bool saving) const noexcept { return policy_.wait_for_saves && saving && slowest == granted_; }
  /// An epoch begins after `step`: what was granted before is granted anew.
  void rewind(Step step) noexcept {
    furthest_ = std::max(furthest_, granted_);
    granted_ = step;
  }
  /// No step past this one is granted: the epoch ends with it and another follows. Nothing: none does.
  void pause_after(std::optional<Step> step) noexcept { pause_ = step; }
  [[nodiscard]] std::optional<Step> pause() const noexcept { return pause_; }
  /// The run ends with the next step to be granted, if it is not granted its last already. Returns the step it ends with.
  Step stop();
  [[nodiscard]] Step granted() const noexcept { return granted_; }
  /// The newest step that was ever granted.
  [[nodiscard]] Step furthest() const noexcept { return std::max(granted_, furthest_); }
  [[nodiscard]] Step last_step() const noexcept { return policy_.last_step; }
  /// Is a checkpoint of this step written?
  [[nodiscard]] bool saves(Step step) const { return (stopping_ && step == policy_.last_step) ? policy_.save_at_stop : policy_.snapshot_due(step); }

 private:
  StepPolicy policy_;
  Step granted_;
  Step furthest_;  ///< before a rewind
  std::optional<Step> pause_;
  bool stopping_ = false, stop_asked_ = false;
};

}  // namespace troupe
