#pragma once
#include <filesystem>

#include "src/metrics/line_file.hpp"
#include "src/metrics/step_metrics.hpp"

namespace troupe {

/// metrics.jsonl: one line for every step, in order, each step once.
class MetricsFile {
 public:
  /// Lines of steps after `restored` are cut: those steps will run again. `restored` 0 begins an empty file. A line that is none of
  /// ours is an error that names its number.
  [[nodiscard]] static Result<MetricsFile> open(const std::filesystem::path& path, Step restored, const DeviceRates& rates);
  /// As LineFile::append: an error loses nothing, the line is tried again with the next.
  [[nodiscard]] Result<void> append(const StepMetrics& metrics) { return file_.append(metrics_line(metrics, rates_)); }
  /// What was not known when it was opened.
  void set_rates(const DeviceRates& rates) { rates_ = rates; }
  [[nodiscard]] Result<void> sync() { return file_.sync(); }

 private:
  MetricsFile(LineFile file, const DeviceRates& rates) : file_(std::move(file)), rates_(rates) {}
  LineFile file_;
  DeviceRates rates_;
};

}  // namespace troupe
