#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/metrics/step_metrics.hpp"

namespace troupe {

/// What one line of the console stands for: a step, and the time since the line before.
struct LoggedMetrics {
  StepMetrics step;         ///< the newest
  std::uint64_t steps = 0;  ///< that this covers
  double tps = 0;           ///< tokens per second and device, over these steps
  double seconds = 0;       ///< of these steps
  double wait_batch_seconds = 0, wait_weights_seconds = 0, wait_gradients_seconds = 0, wait_snapshots_seconds = 0;  ///< sums
};

/// Sums steps until one is due: the first that it is told of, and whenever `log_freq` divides the step.
class LogWindow {
 public:
  explicit LogWindow(std::int64_t log_freq) : log_freq_(static_cast<std::uint64_t>(log_freq)) {}
  [[nodiscard]] std::optional<LoggedMetrics> add(const StepMetrics& metrics);
  /// From the next step on.
  void every(std::int64_t log_freq) { log_freq_ = static_cast<std::uint64_t>(log_freq); }

 private:
  std::uint64_t log_freq_;
  bool any_ = false;
  std::uint64_t tokens_ = 0;
  LoggedMetrics open_;
};

/// A named number, as TensorBoard and others show it.
struct Scalar {
  std::string tag;
  double value = 0;
};

/// Under torchtitan's names, and ours beside them (wait/…, tflops_causal, mfu_causal(%), mfu_fp8(%)). Shares of what is unknown are left out.
[[nodiscard]] std::vector<Scalar> scalars_of(const LoggedMetrics& logged, const DeviceRates& rates);
/// Of a step with a validation, under torchtitan's names.
[[nodiscard]] std::vector<Scalar> validation_scalars(const StepMetrics& metrics, const DeviceRates& rates);

}  // namespace troupe
