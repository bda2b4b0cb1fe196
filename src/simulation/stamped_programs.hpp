#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "src/model/programs.hpp"
#include "src/simulation/findings.hpp"

namespace troupe {

/// Programs that compute nothing and remember everything: each writes into its slots who wrote them, for which step, micro-batch and
/// unit, and checks what it reads. A mismatch is a finding of `live_data` and a failed operation. One thread for all ranks.
struct StampedModel {
  std::uint32_t ranks = 1, units = 3, micro_batches = 1;
  std::uint32_t evaluation_batches = 0;   ///< behind a step's micro-batches, after steps that evaluate
  std::uint32_t replicas = 1;             ///< ranks / replicas share one copy of the state
  bool reduce_last = false;               ///< what is reduced is the sum of all micro-batches
  bool step_in_backward = false;          ///< each unit is judged and updated by itself
  std::uint64_t seed = 0;                 ///< of the loss
  std::uint64_t rows = 0;                 ///< of a step, dealt to the ranks in turn; a micro-batch holds one, or padding; 0: no padding
  std::function<bool()> after_a_failure;  ///< true: what goes wrong from now on fails its operation and is no finding; empty: never
  std::function<bool(Step)> overflows;    ///< steps whose loss is not finite: the verdict skips them; empty: none
};

/// One rank's state. What the four programs of a rank share.
class StampedRank {
 public:
  StampedRank(const StampedModel& model, std::uint32_t rank, Findings& findings, Step first = Step{1});
  [[nodiscard]] std::shared_ptr<LoaderProgram> loader();
  [[nodiscard]] std::shared_ptr<ComputeProgram> compute();
  [[nodiscard]] std::shared_ptr<ShardProgram> shard();
  [[nodiscard]] std::shared_ptr<SnapshotProgram> snapshot();
  /// Hands the state's step to `memory`, with epoch and slot, when all of it stands.
  using Memory = std::function<void(EpochId, Step, std::uint32_t slot)>;
  [[nodiscard]] std::shared_ptr<KeepProgram> keep(Memory memory);
  /// Steps whose optimizer ran for every unit.
  [[nodiscard]] Step committed() const;
  [[nodiscard]] BatchLayout batch() const { return {1, 4}; }
  /// Collectives with other members than the plan's, a verdict of its own …: for tests of the invariants.
  std::function<void(StepNumbers&)> distort_numbers;

 private:
  friend struct StampedLoader;
  friend struct StampedCompute;
  friend struct StampedShard;
  friend struct StampedSnapshot;
  friend struct StampedKeep;
  [[noreturn]] void wrong(const std::string& text);
  void expect(bool holds, const char* what, Step step, Micro micro, Unit unit);
  void check_batch(std::span<const std::byte> batch, Step step, Micro micro);
  void check_weights(std::span<const std::byte> weights, Step step, Unit unit);
  void check_gradients(std::span<const std::byte> gradients, Step step, Micro micro, Unit unit);
  void check_reduced(Step step);
  /// The row of a micro-batch within its step; nothing: padding.
  [[nodiscard]] std::optional<std::uint64_t> row_of(Micro micro) const noexcept {
    const std::uint64_t row = std::uint64_t{micro.value()} * model_.ranks + rank_;
    return model_.rows == 0 || row < model_.rows ? std::optional(row) : std::nullopt;
  }
  [[nodiscard]] std::uint32_t shards() const noexcept { return model_.ranks / model_.replicas; }
  [[nodiscard]] std::uint32_t own_part() const noexcept { return rank_ % shards(); }

  StampedModel model_;
  std::uint32_t rank_;
  Findings& findings_;
  std::vector<std::uint64_t> version_;                           ///< by unit: the last step whose optimizer ran
  std::set<std::pair<std::uint32_t, std::uint32_t>> saved_;      ///< (micro, unit) whose forward ran and whose backward did not
  std::set<std::pair<std::uint32_t, std::uint32_t>> reduced_;    ///< (micro, unit) of the running step
  std::set<std::pair<std::uint32_t, std::uint32_t>> evaluated_;  ///< (micro, unit) of the validation set whose forward ran
  std::set<std::uint32_t> replicated_;                           ///< units of the running step, summed over the replicas
  std::vector<std::vector<float>> sums_, shards_;                ///< by unit: of all parts, unsharded; of the own part, reduced
  std::uint64_t decided_ = 0;                                    ///< last step with a verdict
  std::vector<std::uint64_t> judged_;                            ///< by unit: last step with a verdict on it alone
  std::uint64_t bytes_gathered_ = 0, bytes_reduced_ = 0;
  StepNumbers numbers_;
};

}  // namespace troupe
