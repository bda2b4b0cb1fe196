#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "src/config/job_config.hpp"
#include "src/optimizer/warmup_stable_decay.hpp"

namespace troupe {

/// The configuration of a run that is going on: which values hold at which step, and what an epoch's ranks are told of them. What has been
/// agreed for a step stays, so that a step that runs again after a fault runs with the same values. Any thread.
class LiveConfig {
 public:
  /// Where the run began: `step` and `row`, the rows of data used before; steps that the schedule does not count; and with how many ranks,
  /// which says how many rows a step has where training.global_batch_size does not.
  struct Start {
    Step schedule_before;
    Step step;
    std::uint64_t row = 0;
    std::uint32_t ranks = 1;
  };
  LiveConfig(const JobConfig& config, Start start);
  LiveConfig(const JobConfig& config, Step schedule_before) : LiveConfig(config, Start{.schedule_before = schedule_before, .step = {}}) {}
  /// Before the run begins.
  void ranks(std::uint32_t ranks) { start_.ranks = ranks; }
  /// The changes that [[changes]] or [live] changes plan, "step=7 optimizer.lr=1e-4"; the error names the one that cannot be.
  [[nodiscard]] Result<void> plan(const std::vector<std::string>& planned);
  /// Are these changes ("optimizer.lr=1e-4") possible in a live run? The error names key and reason.
  [[nodiscard]] Result<void> check(const std::vector<std::string>& changes) const;
  /// From this step on. All or nothing. What was planned for later of the same keys is dropped.
  [[nodiscard]] Result<void> change(const std::vector<std::string>& changes, Step from);
  /// What was agreed to begin with this step does not.
  void withdraw(Step from);
  /// The keys that a live run can change, with their newest values as TOML.
  [[nodiscard]] std::map<std::string, std::string> values() const;
  [[nodiscard]] double learning_rate(Step step) const;
  /// The last step of the run, as it holds at this one.
  [[nodiscard]] Step last_step(Step at) const;
  [[nodiscard]] bool snapshot_due(Step step) const;
  [[nodiscard]] Nanos train_timeout(Step step) const;
  /// Steps between lines on the console.
  [[nodiscard]] std::int64_t log_freq(Step step) const;
  [[nodiscard]] bool evaluation_due(Step step) const;
  [[nodiscard]] GuardSettings guard(Step step) const;
  /// Rows of data used when this step is over.
  [[nodiscard]] std::uint64_t data_row(Step step) const;

  /// Does any of these take a new epoch?
  [[nodiscard]] bool takes_epoch(const std::vector<std::string>& changes) const;
  /// The first step after this one that a new epoch must begin with.
  [[nodiscard]] std::optional<Step> next_epoch(Step after) const;
  /// What `ranks` ranks change in the configuration that the run began with, in an epoch that begins with this step: what was agreed, and for another
  /// number of ranks the rows of a step and the degrees of the mesh. The error says why they cannot run it.
  [[nodiscard]] Result<std::vector<std::string>> epoch_changes(Step first, std::uint32_t ranks) const;
  /// The whole configuration of such an epoch; with `changes` beside what was agreed, of the newest step.
  [[nodiscard]] Result<JobConfig> epoch_config(Step first, std::uint32_t ranks) const;
  [[nodiscard]] Result<JobConfig> epoch_config_with(const std::vector<std::string>& changes, std::uint32_t ranks) const;

 private:
  /// Are ranks built with it?
  [[nodiscard]] bool of_epoch(std::string_view change) const;
  struct Values {
    JobConfig config;
    WarmupStableDecay schedule;
    std::vector<std::string> of_epochs;  ///< agreed so far, of keys that take a new epoch
    bool new_epoch = false;              ///< begins with one
  };
  [[nodiscard]] Result<JobConfig> changed(const JobConfig& config, const std::vector<std::string>& changes) const;
  [[nodiscard]] Result<std::map<Step, Values>> values_of(const std::map<Step, std::vector<std::string>>& agreed) const;
  [[nodiscard]] const Values& at(Step step) const;
  [[nodiscard]] Result<std::vector<std::string>> changes_of(const Values& values, std::uint32_t ranks) const;
  [[nodiscard]] Result<JobConfig> config_for(const Values& values, std::uint32_t ranks) const;

  mutable std::mutex mutex_;
  JobConfig base_;
  Start start_;
  std::map<Step, std::vector<std::string>> agreed_;
  std::map<Step, Values> from_;  ///< by the first step that they hold at
};

/// The degrees dp_replicate and dp_shard of `ranks` ranks that were configured for another number: as many replicas as fit, at most as configured.
[[nodiscard]] MeshDegrees fitted_mesh(const JobConfig& config, std::uint32_t ranks);

}  // namespace troupe
