#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "actors/step_join.hpp"

namespace troupe {

/// What was reported of each step the first time, so that a step that runs again after a fault is told once and must come to the same: bit for
/// bit with the same ranks and configuration (StepRecord::layout), else with the same data.
/// Pure; the Coordinator's handlers only.
class StepHistory {
 public:
  /// `base`: the step that the run began after, with `tokens` valid tokens up to it.
  StepHistory(Step base, std::uint64_t tokens) : base_(base), newest_(base), base_tokens_(tokens) {}
  struct Told {
    bool fresh = false;      ///< never reported before: tell it
    std::string difference;  ///< of a replay from the first report: "loss 2.5 and 2.4"; empty: none
  };
  [[nodiscard]] Told add(const StepRecord& record);
  [[nodiscard]] Step newest() const noexcept { return newest_; }
  /// Valid tokens up to a step from the oldest kept one on.
  [[nodiscard]] std::uint64_t tokens_at(Step step) const;
  /// An epoch may begin after this step however old it grows. Nothing, when it is forgotten already.
  void pin(Step step);
  /// Only to a pinned step will an epoch go back that is older than this.
  void forget_before(Step step);
  [[nodiscard]] std::size_t size() const noexcept { return first_.size(); }

 private:
  Step base_, newest_;
  std::uint64_t base_tokens_;
  std::map<Step, StepRecord> first_;
  std::map<Step, std::uint64_t> pinned_;  ///< their tokens
};

}  // namespace troupe
