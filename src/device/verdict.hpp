#pragma once
#include <atomic>
#include <cstdint>

namespace troupe {

/// Values that fp8 casts met, in fp64, so that the ranks can sum them with the verdict's other sums.
struct Float8Counts {
  double saturated = 0;   ///< finite, but beyond the format's largest value even when rounded
  double non_finite = 0;  ///< NaN or infinite after scaling (an infinite amax gives scale 0, and so NaN)
};

/// What the ranks sum at the end of a step, in fp64, in this order (one all-reduce over the world communicator).
struct VerdictSums {
  double grad_square = 0;                   ///< Σ g² of this rank's gradient shards, gradients of the loss divided by the nominal token count
  double loss = 0;                          ///< Σ −log p over valid targets
  double tokens = 0;                        ///< valid targets
  double bad = 0;                           ///< non-finite losses, overflowed extents
  double tag = 0;                           ///< tag(epoch, step): an aborted collective may hand back stale bytes
  Float8Counts activations = {};            ///< casts of Compute: activations, their gradients, and weights that were gathered unquantised
  Float8Counts weights = {};                ///< casts of shards before an fp8 gather
  static constexpr std::int64_t count = 9;  ///< of the doubles in it
};
static_assert(sizeof(VerdictSums) == VerdictSums::count * sizeof(double));

enum class VerdictOutcome : std::uint32_t { commit = 0, skip = 1, void_ = 2 };

/// Lies in device memory; every kernel that writes state reads it and acts only on commit.
struct Verdict {
  VerdictOutcome outcome = VerdictOutcome::void_;
  float gradient_factor = 0;  ///< clip × nominal tokens / actual tokens: what AdamW multiplies gradients by
  double grad_norm = 0;       ///< of the mean loss's gradient, before clipping
  double mean_loss = 0;
  double tokens = 0;  ///< of the global batch
  double bad = 0;
  Float8Counts activations = {}, weights = {};  ///< of all ranks, in this step
};

/// Host-written, device-read: set by the abort protocol, latched until the epoch ends. Pinned on a GPU.
using HaltWord = std::atomic<std::uint32_t>;

/// Exactly representable in fp64 also when summed over 2^20 ranks. Nonzero.
[[nodiscard]] constexpr double verdict_tag(std::uint64_t epoch, std::uint64_t step) noexcept {
  return static_cast<double>((epoch * 1000003U + step) % 0xffffffU + 1U);
}

/// Pure; the CPU's verdict kernel and the reference of the GPU's. `nominal_tokens`: what backward divided the loss by.
/// max_norm <= 0 or infinite: no clipping. DESIGN: void, else skip if bad > 0 or Σg² not finite, else commit.
[[nodiscard]] Verdict decide_verdict(const VerdictSums& sums, double world, double expected_tag, double nominal_tokens, double max_norm, bool halted) noexcept;

}  // namespace troupe
