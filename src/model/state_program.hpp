#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "src/device/fused_kernels.hpp"
#include "src/model/programs.hpp"
#include "src/model/shard_memory.hpp"
#include "src/model/step_totals.hpp"
#include "src/optimizer/adamw_settings.hpp"

namespace troupe {

/// Sharding's program over a rank's ShardMemory: casts, gathers, reduces, the verdict, AdamW. Everything referred to outlives it.
class StateProgram final : public ShardProgram {
 public:
  struct Inputs {
    const WeightLayout& layout;
    const ShardMemory& memory;
    Kernels& kernels;
    StepTotals* totals = nullptr;      ///< device memory
    StepTotals* told = nullptr;        ///< host memory that the device reaches: as of the newest verdict, for `numbers`
    StepTotals* evaluation = nullptr;  ///< device memory: of the validation set; null where nothing is evaluated
    RowSources sources = {};           ///< whose losses are counted apart
    LossSum* marks = nullptr;          ///< device memory: TapeProgram::Inputs::marks; null: sources are not counted
    LossSum* told_marks = nullptr;     ///< host memory that the device reaches: as of the newest verdict
    LossSum* evaluated = nullptr;      ///< host memory that the device reaches: as of the newest `evaluate`
    VerdictSums* unit_sums = nullptr;  ///< device memory: of the newest unit verdict; null where the step follows the whole backward pass
    Verdict* unit_verdicts = nullptr;  ///< device memory [unit], that of unit 0 unused
    DeviceId device;
    const HaltWord* halt = nullptr;
    std::vector<AdamWSettings> optimizer;  ///< [LaidParameter]
    double ema_decay = 0;                  ///< 0: the memory has no averages
    double max_norm = 1, nominal_tokens = 1;
    bool counts_in_norm = true;       ///< false on all replicas but one: their gradient shards are copies
    std::uint32_t micro_batches = 1;  ///< whose reduces make up a step, unless the sums are reduced with the last
    bool replicated = false;          ///< all_reduce follows a unit's last reduce
    bool in_place = false;            ///< backward writes gradients where they stay: nothing is left to reduce (gradients_stay)
  };
  explicit StateProgram(const Inputs& inputs)
      : in_(inputs), fused_(dynamic_cast<FusedKernels*>(&inputs.kernels)), amaxes_known_(inputs.layout.units.size(), 0) {}

  [[nodiscard]] std::size_t weights_bytes(Unit unit) const override { return in_.layout.units.at(unit.value()).weights_bytes; }
  [[nodiscard]] std::size_t gradients_bytes(Unit unit) const override { return in_.layout.units.at(unit.value()).gradients_bytes; }
  void scales(Stream& stream, Unit unit, Communicator& dp_shard) override;
  void gather(Stream& stream, Unit unit, std::span<std::byte> weights, Communicator& dp_shard) override;
  void accumulate(Stream& stream, Micro micro, Unit unit, std::span<std::byte> gradients) override;
  void reduce(Stream& stream, Micro micro, Unit unit, std::span<std::byte> gradients, Communicator& dp_shard) override;
  void all_reduce(Stream& stream, Unit unit, Communicator& dp_replicate) override;
  void verdict(Stream& stream, EpochId epoch, Step step, Communicator& world) override;
  void unit_verdict(Stream& stream, EpochId epoch, Step step, Unit unit, Communicator& world) override;
  void evaluate(Stream& stream, Communicator& world) override;
  void optimize(Stream& stream, Step step, Unit unit, double learning_rate) override;
  [[nodiscard]] StepNumbers numbers() const override;

  /// The local halves of `scales` and `gather`: all there is to them where one rank holds everything.
  void find_amaxes(Stream& stream, Unit unit);
  void scales_from_amaxes(Stream& stream, Unit unit);
  void place_own_rows(Stream& stream, Unit unit, std::span<std::byte> weights);
  /// The masters were written by somebody else: their amaxes are to be found anew.
  void masters_changed() noexcept { std::ranges::fill(amaxes_known_, std::uint8_t{0}); }

 private:
  void add_to_norm(Stream& stream, Unit unit) const;
  void add_to_sums(Stream& stream, bool first, Unit unit, std::span<std::byte> gradients) const;
  [[nodiscard]] std::vector<LossSum> source_sums() const;
  [[nodiscard]] std::size_t part_bytes(const ParameterSlot& slot) const;
  [[nodiscard]] bool travels_in_fp8(Unit unit) const;

  Inputs in_;
  FusedKernels* fused_;                     ///< null: the device has none
  std::vector<std::uint8_t> amaxes_known_;  ///< [unit], the optimizer found them; bytes, for lanes work on different units at once
  std::vector<AdamWShard> adamw_;           ///< kept, as the next three; of the optimizer lane, those of the comm lane
  std::vector<ShardCopy> copies_;
  std::vector<GatherPiece> gather_;  ///< kept, so that a step allocates nothing
  std::vector<ReducePiece> reduce_;
  std::uint64_t gathered_ = 0, reduced_ = 0;  ///< since the last verdict
  StepNumbers numbers_;
  Step decided_;  ///< of the newest verdict
};

}  // namespace troupe
