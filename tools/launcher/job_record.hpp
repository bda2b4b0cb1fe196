#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "actors/job_events.hpp"
#include "src/base/log.hpp"
#include "src/metrics/console_line.hpp"
#include "src/metrics/metrics_file.hpp"
#include "src/trace/tracer.hpp"
#include "tools/launcher/job_sinks.hpp"
#include "tools/launcher/step_times.hpp"

namespace troupe {

struct JobRecordOptions {
  std::filesystem::path run_folder;
  std::uint32_t world_size = 1;
  bool checkpoints = true;  ///< are any written?
  Step restored;            ///< metrics of later steps are cut: those steps run again
  MetricsSettings metrics;
  DeviceRates rates;
  bool colour = false;
  std::function<std::int64_t(Step)> log_freq;  ///< metrics.log_freq where it may change; empty: it does not
  std::string config;                          ///< the merged configuration, TOML
  std::shared_ptr<StepTimes> step_times;       ///< told of each step; null: nobody looks
  Tracer* tracer = nullptr;                    ///< the launcher's: what stands in the journal is marked in the timeline too; null: none
};

/// Writes what happens to the job: RUN/journal.jsonl (one JSON object a line: time, event, fields), RUN/metrics.jsonl (every step), the
/// sinks of [metrics], the notable part into the log. Called by the Coordinator's handlers; a full disk is a warning, the lines wait.
class JobRecord final : public JobEvents {
 public:
  /// The error names the file that cannot be opened, or its line that is not ours.
  [[nodiscard]] static Result<std::unique_ptr<JobRecord>> open(const JobRecordOptions& options, Log& log);
  void joined(const JoinedRank& rank, std::uint32_t so_far) override;
  void epoch_begun(const BeginEpoch& epoch) override;
  void epoch_ready(EpochId epoch, std::uint64_t arena_bytes) override;
  void devices(const DevicePowers& of_each) override;
  void step(const StepRecord& record) override;
  void checkpoint(Step step, const std::string& problem) override;
  void stop_requested(const std::string& reason, Step at) override;
  void fault(const std::string& cause, Rank rank, bool first) override;
  void recovering(EpochId ended, std::uint32_t attempts) override;
  void respawn(Rank rank, Incarnation incarnation) override;
  void recovered(EpochId epoch, Step step, Nanos took) override;
  void rolled_back(Step step, const EpochOrigin& to, const std::string& why) override;
  void kept(Step step, EpochId epoch) override;
  void not_kept(Step step, Rank rank, const std::string& problem) override;
  void flight_record(const std::string& text) override;
  void fault_fired(Rank rank, std::uint32_t rule, const Where& where, const std::string& operation) override;
  void changed(Step from, const std::vector<std::string>& changes, const std::string& by) override;
  void change_settled(Step from, const std::string& change, const std::string& problem) override;
  void epoch_ends(EpochId epoch, Step after) override;
  void rank_added(Rank rank, Incarnation incarnation) override;
  void rank_let_go(Rank rank, std::uint32_t left) override;
  void finished(const JobEnd& end) override;
  /// Of the newest step that this run made; empty before the first. Asked when the job has ended.
  [[nodiscard]] std::optional<double> last_loss() const noexcept { return last_loss_; }
  /// Why lines of metrics or journal are missing from their files for good; empty: none are. Asked when the job has ended.
  [[nodiscard]] const std::string& lost() const noexcept { return lost_; }

 private:
  struct Line;
  JobRecord(const JobRecordOptions& options, Log& log, MetricsFile metrics, LineFile journal, std::unique_ptr<JobSinks> sinks);
  void write(const char* event, const Line& fields);
  void warn_once(const Result<void>& written);

  JobRecordOptions options_;
  Log& log_;
  MetricsFile metrics_;
  LineFile journal_;
  std::unique_ptr<JobSinks> sinks_;
  ConsoleReporter console_;
  std::optional<double> last_loss_;
  std::uint32_t ranks_ = 1;  ///< of the epoch
  bool warned_ = false;
  std::string lost_;
  std::pair<Rank, std::string> not_shown_;  ///< the newest fault, if it was not the first of its epoch, and its rank
  bool recovering_ = false;                 ///< since a fault, until a new step
};

}  // namespace troupe
