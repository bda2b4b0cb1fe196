#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <vector>

#include "actors/step_join.hpp"
#include "src/base/log.hpp"
#include "src/metrics/metric_sink.hpp"
#include "src/metrics/settings.hpp"

namespace troupe {

/// What metric sinks are told of a step of the job: counters are sums, times the longest of a rank.
[[nodiscard]] StepMetrics metrics_of(const StepRecord& record);

/// The sinks of a run beside metrics.jsonl, as [metrics] asks for them. Lives in the Coordinator's process, so that no rank's death tears
/// them; used by its handlers. A sink that fails is a warning, once.
class JobSinks {
 public:
  struct Options {
    std::filesystem::path run_folder;
    std::uint32_t world_size = 1;
    Step restored;  ///< steps after it will be written (again)
    MetricsSettings metrics;
    DeviceRates rates;
    std::string config;  ///< the merged configuration, TOML
  };
  /// The error names the file that cannot be made.
  [[nodiscard]] static Result<std::unique_ptr<JobSinks>> open(const Options& options, Log& log);
  /// Every step. `logged`: what the console says of it, null where that says nothing.
  void step(const StepRecord& record, const LoggedMetrics* logged);
  void set_rates(const DeviceRates& rates) { rates_ = rates; }
  void every(std::int64_t log_freq) {
    for (auto& [rank, own] : ranks_) own.window.every(log_freq);
  }
  void close();

 private:
  struct OfRank {
    LogWindow window;
    std::unique_ptr<MetricSink> sink;
  };
  [[nodiscard]] Result<void> open_tensorboard(const Options& options);
  JobSinks(const Options& options, Log& log) : rates_(options.rates), log_(log) {}
  void tell(MetricSink& sink, Step step, const LoggedMetrics& logged);
  void warn_once(const Result<void>& written);

  DeviceRates rates_;
  Log& log_;
  std::vector<std::unique_ptr<MetricSink>> sinks_;
  std::map<Rank, OfRank> ranks_;
  bool warned_ = false;
};

}  // namespace troupe
