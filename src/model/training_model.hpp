#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/device/device.hpp"
#include "src/device/state_tensor.hpp"
#include "src/model/extension.hpp"
#include "src/model/model_description.hpp"
#include "src/model/programs.hpp"
#include "src/model/step_totals.hpp"
#include "src/model/tape_plan.hpp"
#include "src/model/weight_layout.hpp"
#include "src/optimizer/parameter_groups.hpp"

namespace troupe {

/// Everything that one rank's arithmetic of one epoch depends on. A value.
struct TrainingOptions {
  BatchLayout batch;                        ///< of one micro-batch of this rank
  std::uint32_t micro_batches = 1;          ///< gradient accumulation
  std::uint32_t rank = 0, world = 1;        ///< in dp_shard
  std::uint32_t replica = 0, replicas = 1;  ///< in dp_replicate: copies of the sharded model
  bool reduce_last = false;                 ///< sum the micro-batches' gradients unsharded and reduce with the last
  bool gradients_in_place = false;          ///< backward writes gradients where they stay, if one rank holds the state and one micro-batch makes a step
  bool step_in_backward = false;            ///< each unit steps as soon as its gradients are whole; one reduce a step, no clipping
  bool offload = false;                     ///< masters and moments lie in Placement::host
  DType compute = DType::f32;               ///< mixed_precision_param: f32 or bf16 (f64: tests); masters and moments are fp32
  DType gradient = DType::f32;              ///< in which those of matrices are kept, f32 or bf16; bf16 only where gradients_stay, in one replica, beside bf16
  Float8Options float8;
  RecomputePolicy recompute;
  AdamWSettings optimizer;
  BatchLayout evaluation{0, 0};  ///< of one micro-batch of the validation set; no rows: nothing is evaluated
  LossFunction loss;             ///< in place of cross entropy; empty: that
  RowSources sources = {};       ///< of a blend, whose losses are counted apart (not with a loss of an extension)
  ParameterGroups groups;        ///< what is different for some parameters
  double ema_decay = 0;          ///< 0: no moving averages of the weights
  double max_norm = 1.0;         ///< ≤ 0: no clipping
  double nominal_tokens = 0;     ///< what backward divides the loss by; 0: batch.tokens() · micro_batches · world · replicas
  /// Whether backward may write gradients where they stay.
  [[nodiscard]] bool gradients_stay() const noexcept { return gradients_in_place && !step_in_backward && world == 1 && micro_batches == 1; }
  /// This rank's place among all that load data of their own, and how many those are.
  [[nodiscard]] std::uint32_t data_rank() const noexcept { return replica * world + rank; }
  [[nodiscard]] std::uint32_t data_ranks() const noexcept { return replicas * world; }
  [[nodiscard]] bool sums_micro_batches() const noexcept { return reduce_last && micro_batches > 1; }
};

/// What one unit costs; for the plan compiler, estimate and simulate. FLOPs of one micro-batch.
struct UnitCost {
  std::size_t weights_bytes = 0;                 ///< of a gather, all ranks' parts (one byte a value where fp8 travels)
  std::size_t gradients_bytes = 0;               ///< of a reduce
  std::size_t shard_bytes = 0;                   ///< of this rank's gradient shards, which replicas sum
  double forward_flops = 0, backward_flops = 0;  ///< backward with what it computes again
  double recomputed_flops = 0;                   ///< of those, what it computes again
  bool backward_reads_weights = true;            ///< false (embedding): its backward may be called with an empty weights slot
  std::int64_t parameters = 0;                   ///< that its optimizer step updates, on all ranks
};

/// Bytes of one kind of memory of one rank, known before step one.
struct MemoryItem {
  std::string kind;  ///< "fp32 masters", "saved activations", "weights slot", …
  std::size_t bytes = 0;
  bool per_slot = false;  ///< of one slot of an edge; the edge's slot count multiplies it
  bool of_arena = false;  ///< activations and working memory
  Placement placement = Placement::device;
};

/// What can be said of a TrainingModel without making one: no device, no allocation. A pure function of its arguments.
struct TrainingEstimate {
  WeightLayout layout;
  TapePlan tapes;
  KeptSteps kept;            ///< [unit][step]: what backward finds, and what it computes again
  TapePlan evaluation = {};  ///< forward and loss on the validation set's batches, in the same arena; empty: nothing is evaluated
  std::vector<UnitCost> units;
  std::vector<MemoryItem> memory;
  double flops_per_token = 0;
  std::int64_t parameter_count = 0;
  [[nodiscard]] std::size_t weights_slot_bytes() const noexcept;  ///< the largest unit's
  [[nodiscard]] std::size_t gradients_slot_bytes() const noexcept;
  [[nodiscard]] std::size_t resident_bytes() const noexcept;  ///< all that is not per slot
};
[[nodiscard]] TrainingEstimate estimate_training(const ModelDescription& model, const TrainingOptions& options);

/// The arithmetic of one rank for one epoch: state shards, arena, and the programs that lanes run. Made and destroyed on the main thread;
/// its programs follow programs.hpp. Memory is allocated in the constructor and nowhere else.
class TrainingModel {
 public:
  /// `device` and `halt` (may be null) outlive the model. Throws std::bad_alloc, or std::invalid_argument naming what does not fit.
  TrainingModel(ModelDescription model, TrainingOptions options, Device& device, const HaltWord* halt);
  ~TrainingModel();
  TrainingModel(const TrainingModel&) = delete;
  TrainingModel& operator=(const TrainingModel&) = delete;

  [[nodiscard]] ComputeProgram& compute() noexcept;
  [[nodiscard]] ShardProgram& shards() noexcept;
  /// fp32 masters, exp_avg, exp_avg_sq: this rank's rows. Step counts ("optimizer.step.<parameter>", i64 [1]): of rank 0; the other ranks
  /// list them too, with rows 1, to be restored, and `replicated` says so.
  [[nodiscard]] StateTensors state();
  /// fp32 gradient shards under their parameters' names, of the loss's sum over the step divided by options().nominal_tokens, as the last
  /// step left them; empty with step_in_backward. For inspection: no checkpoint holds them.
  [[nodiscard]] StateTensors gradients();
  /// The averages under the weights' own names; empty without ema_decay.
  [[nodiscard]] StateTensors averages();
  /// Averages that no checkpoint held begin at the present weights. Blocks.
  void begin_averages();
  /// Fills the masters (and averages): each value is a function of (seed, parameter's name, index in the whole tensor), so that it does not depend on
  /// the sharding. Moments and step counts become zero. Blocks.
  void initialise(std::uint64_t seed);
  /// After the state was overwritten from a checkpoint: padding and what depends on the state are made new. Fp8 scales are computed by
  /// each step's `scales` anyway.
  void after_restore();

  [[nodiscard]] std::uint32_t units() const noexcept;
  [[nodiscard]] const ModelDescription& description() const noexcept;
  [[nodiscard]] const TrainingOptions& options() const noexcept;
  [[nodiscard]] const TrainingEstimate& estimate() const noexcept;
  /// Bytes that the constructor took from the device; equals estimate().resident_bytes().
  [[nodiscard]] std::size_t allocated_bytes() const noexcept;
  [[nodiscard]] std::size_t device_bytes() const noexcept;  ///< of those, what lies in Placement::device
  /// [LaidParameter]: where the scale of each weight that computes in fp8 lies; null for the others.
  [[nodiscard]] std::vector<const float*> float8_scales() const;
  /// All weights of a unit, cast as a gather would, where this rank is the whole world (sampling, tests);
  /// unit 0 comes first and makes the fp8 scales. `weights`: weights_bytes(unit).
  void place_weights(Stream& stream, Unit unit, std::span<std::byte> weights);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace troupe
