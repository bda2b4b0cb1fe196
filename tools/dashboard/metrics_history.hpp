#pragma once
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

namespace troupe {

/// All steps of a run, read from its metrics.jsonl as that grows: each line once. Any thread.
class MetricsHistory {
 public:
  explicit MetricsHistory(std::filesystem::path file) : file_(std::move(file)) {}

  /// What the charts show, as JSON: {"steps": n, "first": …, "last": …, "columns": {"step": […], "loss": {"mean": […], "least": […], "most": […]}, …}},
  /// at most `points` of them: each stands for as many steps as needed, with the mean, the least and the most of them, so that no spike is lost.
  /// Columns: loss, grad_norm, tps, step_seconds, lr, arena_peak_bytes. Values that are not finite are null.
  [[nodiscard]] std::string chart_json(std::size_t points);
  /// The newest line as it stands in the file; empty before the first.
  [[nodiscard]] std::string newest();
  /// Steps whose outcome was not "commit".
  [[nodiscard]] std::uint64_t not_committed();

 private:
  void read_on();
  void take(const std::string& line);

  static constexpr std::size_t columns = 6;
  std::mutex mutex_;
  std::filesystem::path file_;
  std::uintmax_t reached_ = 0;  ///< bytes of whole lines read
  std::vector<std::uint64_t> steps_;
  std::vector<double> values_[columns];
  std::string newest_;
  std::uint64_t not_committed_ = 0;
};

}  // namespace troupe
