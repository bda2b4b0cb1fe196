#pragma once
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "src/config/job_config.hpp"
#include "src/optimizer/warmup_stable_decay.hpp"

namespace troupe {

/// The configuration of a run that is going on: which values hold at which step. What has been agreed for a step stays, so that a step that
/// runs again after a fault runs with the same values. Any thread.
class LiveConfig {
 public:
  /// `schedule_before`: steps that the schedule does not count.
  LiveConfig(const JobConfig& config, Step schedule_before);
  /// The changes that [live] changes plans, "step=7 optimizer.lr=1e-4"; the error names the one that cannot be.
  [[nodiscard]] Result<void> plan(const std::vector<std::string>& planned);
  /// Are these changes ("optimizer.lr=1e-4") possible in a live run? The error names key and reason.
  [[nodiscard]] Result<void> check(const std::vector<std::string>& changes) const;
  /// From this step on. All or nothing.
  [[nodiscard]] Result<void> change(const std::vector<std::string>& changes, Step from);
  [[nodiscard]] double learning_rate(Step step) const;
  [[nodiscard]] bool snapshot_due(Step step, Step last) const;

 private:
  struct Values {
    JobConfig config;
    WarmupStableDecay schedule;
  };
  [[nodiscard]] Result<JobConfig> changed(const JobConfig& config, const std::vector<std::string>& changes) const;
  [[nodiscard]] const Values& at(Step step) const;
  [[nodiscard]] static Values values_of(JobConfig config);

  mutable std::mutex mutex_;
  std::map<Step, Values> from_;  ///< by the first step that they hold at
  Step schedule_before_;
};

}  // namespace troupe
