#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "src/base/clock.hpp"
#include "src/base/ids.hpp"
#include "src/device/verdict.hpp"
#include "src/runtime/plan.hpp"

namespace troupe {

/// Σ −log p over valid tokens of one source of a blend, and how many they are.
struct SourceLoss {
  double loss = 0;
  std::uint64_t tokens = 0;
};

/// One rank's StepReport, as a value.
struct RankReport {
  VerdictOutcome outcome = VerdictOutcome::void_;
  StepKind kind = StepKind::train;
  double loss = 0, grad_norm = 0, learning_rate = 0;
  std::uint64_t tokens = 0;        ///< valid, of the global batch
  std::uint64_t local_tokens = 0;  ///< this rank's
  std::uint64_t digest = 0;
  Nanos duration{0};
  std::uint64_t arena_peak_bytes = 0, bytes_gathered = 0, bytes_reduced = 0;
  Nanos wait_batch{0}, wait_weights{0}, wait_gradients{0}, wait_snapshots{0};
  std::uint64_t non_finite = 0, float8_saturated = 0, float8_non_finite = 0;  ///< of all ranks
  double own_loss = 0;                                                        ///< mean over this rank's valid tokens; joined: the largest of a rank
  double evaluation_loss = 0;                                                 ///< of the validation set, after this step
  std::uint64_t evaluation_tokens = 0;                                        ///< of all ranks; 0: none was due
  Nanos evaluation_time{0};                                                   ///< that it took; `duration` is without it
  std::vector<SourceLoss> sources = {};                                       ///< of this rank's rows, by source of a blend; joined: of all ranks
};

/// How two reports of one step differ in what the verdict's all-reduce makes equal everywhere: "loss 2.5 and 2.4". Nothing: not at all.
[[nodiscard]] std::optional<std::string> difference(const RankReport& a, const RankReport& b);

/// Whether the sums by source are the same bit for bit: of the same rank, or joined of the same ranks.
[[nodiscard]] bool same_sources(const RankReport& a, const RankReport& b);

/// A step as all its ranks reported it: what metric sinks are fed with.
struct StepRecord {
  EpochId epoch;
  Step step;
  RankReport common;  ///< what is equal on all ranks; counters are sums, durations and arena the largest
  std::uint32_t ranks = 0;
  std::uint64_t total_tokens = 0;   ///< valid tokens since step 1, this step included (committed or skipped)
  std::map<Rank, RankReport> each;  ///< what they reported
  std::uint64_t layout = 0;         ///< of ranks and configuration: runs of a step with the same one come to the same bits
};

/// Why a step was not committed: "3 losses are not finite", "the gradients' norm is inf".
[[nodiscard]] std::string describe_nonfinite(const RankReport& report);

/// Joins the reports of all ranks, step by step. Pure; the Coordinator's handlers only.
class StepJoin {
 public:
  StepJoin(std::uint32_t ranks, Step before_first, std::uint64_t tokens_before) : ranks_(ranks), joined_(before_first), total_tokens_(tokens_before) {}

  struct Mismatch {
    std::string problem;
  };
  using Outcome = std::variant<std::monostate, StepRecord, Mismatch>;
  /// The joined record once the last rank has reported this step; a Mismatch when ranks disagree on the verdict, or a report is
  /// repeated or out of order.
  [[nodiscard]] Outcome add(EpochId epoch, Step step, Rank rank, const RankReport& report);
  [[nodiscard]] Step last_joined() const noexcept { return joined_; }  ///< newest step that all ranks reported

 private:
  std::uint32_t ranks_;
  Step joined_;
  std::uint64_t total_tokens_;
  std::map<Step, std::map<Rank, RankReport>> open_;
};

}  // namespace troupe
