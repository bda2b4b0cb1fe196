#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "src/base/ids.hpp"
#include "src/device/verdict.hpp"

namespace troupe {

/// What metric sinks are told about one step of the job. A value.
struct StepMetrics {
  Step step;
  EpochId epoch;
  VerdictOutcome outcome = VerdictOutcome::commit;
  double loss = 0;                 ///< mean over the valid tokens of the global batch
  double grad_norm = 0;            ///< before clipping
  double learning_rate = 0;        ///< used in this step
  std::uint64_t step_tokens = 0;   ///< valid tokens of this step, all ranks
  std::uint64_t total_tokens = 0;  ///< valid tokens since step 1, this step included
  std::uint32_t ranks = 1;
  double step_seconds = 0;
  double wait_batch_seconds = 0;  ///< compute idle for want of a batch, the longest of a rank; below for want of other things
  double wait_weights_seconds = 0, wait_gradients_seconds = 0, wait_snapshots_seconds = 0;
  double max_loss = 0;       ///< the largest of the ranks' own mean losses
  std::uint64_t digest = 0;  ///< of the step's token ids
  std::uint64_t arena_peak_bytes = 0, bytes_gathered = 0, bytes_reduced = 0;
  std::uint64_t non_finite = 0;         ///< losses that the verdict counted
  std::uint64_t float8_saturated = 0;   ///< values that fp8 casts of all ranks cut to the format's largest
  std::uint64_t float8_non_finite = 0;  ///< values that fp8 casts of all ranks found not finite
  double validation_loss = 0;           ///< mean over the validation set, after this step
  std::uint64_t validation_tokens = 0;  ///< valid tokens of it; 0: none was due
  double validation_seconds = 0;        ///< that it took, beside step_seconds
  struct Source {
    double loss = 0;           ///< mean over its valid tokens; NaN: none
    std::uint64_t tokens = 0;  ///< valid tokens of this step
  };
  std::vector<Source> sources = {};  ///< of a blend, in the order of training.dataset_path; empty: one source
};

/// What turns tokens into FLOP/s.
struct DeviceRates {
  double flops_per_token = 0;         ///< of the model, forward and backward, by torchtitan's formula: attention as if nothing were masked
  double flops_per_token_causal = 0;  ///< the same with the half of attention that causality leaves
  double peak_flops = 0;              ///< of one device in bf16, per second; 0: unknown, so there is no mfu
  double peak_flops_fp8 = 0;          ///< the same in fp8
  std::uint64_t memory_bytes = 0;     ///< of one device; 0: unknown
};

/// Tokens per second and device; 0 when the time is not positive.
[[nodiscard]] double tokens_per_second(std::uint64_t tokens, double seconds, std::uint32_t ranks) noexcept;

/// FLOP/s at `tps`, and how much of the device that is.
struct Utilisation {
  double tflops = 0, tflops_causal = 0;
  double mfu = 0, mfu_causal = 0, mfu_fp8 = 0;  ///< percent; NaN where the peak is unknown
};
[[nodiscard]] Utilisation utilisation(const DeviceRates& rates, double tps) noexcept;

/// The line of metrics.jsonl, without line feed: keys step, loss, grad_norm, lr, tokens (cumulative), tps (per device), step_seconds,
/// epoch, outcome ("commit", "skip", "void"), digest (16 hexadecimal digits: JSON numbers are doubles to many readers), step_tokens,
/// max_loss, tflops, tflops_causal, mfu, mfu_causal, mfu_fp8 (percent; null where the peak is unknown), wait_batch_seconds,
/// wait_weights_seconds, wait_gradients_seconds, wait_snapshots_seconds, arena_peak_bytes, bytes_gathered, bytes_reduced, non_finite, float8_saturated,
/// float8_non_finite; of a blend source_loss and source_tokens, an array each, in the order of training.dataset_path; and after a step with a validation
/// validation_loss, validation_tokens, validation_seconds. Numbers have all digits that a
/// double needs to read back exactly; non-finite ones are null.
[[nodiscard]] std::string metrics_line(const StepMetrics& metrics, const DeviceRates& rates);

}  // namespace troupe
