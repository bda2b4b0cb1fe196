#pragma once
#include <optional>
#include <string>

#include "src/metrics/logged_metrics.hpp"
#include "src/metrics/settings.hpp"

namespace troupe {

/// The console's lines in torchtitan's form:
///   step:  1  loss:  7.2190  grad_norm:  1.5312  memory:  0.05GiB  tps: 1,234  tflops: 0.12  mfu: N/A
/// memory: the arena's peak of one device, with its share where the device's memory is known; tps: per device, over the steps since
/// the line before; mfu: N/A where the peak is unknown (a CPU).
class ConsoleReporter {
 public:
  /// `colour`: standard output is a terminal.
  ConsoleReporter(const MetricsSettings& settings, const DeviceRates& rates, bool colour)
      : window_(settings.log_freq), rates_(rates), colour_(colour && !settings.disable_color_printing) {}
  void set_rates(const DeviceRates& rates) { rates_ = rates; }
  void every(std::int64_t log_freq) { window_.every(log_freq); }
  /// A line at the first step that it is told of, and whenever log_freq divides the step; else nothing.
  [[nodiscard]] std::optional<std::string> add(const StepMetrics& metrics);
  /// After a step with a validation, whatever log_freq says:
  ///   validate step: 20  loss:  2.1034  memory:  0.05GiB  tps: 1,234
  [[nodiscard]] std::string validation(const StepMetrics& metrics) const;
  /// What the newest line stands for.
  [[nodiscard]] const LoggedMetrics& logged() const noexcept { return logged_; }

 private:
  [[nodiscard]] std::string memory(const StepMetrics& metrics) const;
  [[nodiscard]] std::string line(const StepMetrics& metrics, double tps) const;
  LogWindow window_;
  LoggedMetrics logged_;
  DeviceRates rates_;
  bool colour_;
};

/// 1234567.89 with 2 digits: "1,234,567.89".
[[nodiscard]] std::string with_thousands(double value, int digits);

}  // namespace troupe
