#pragma once
#include <cstdint>
#include <vector>

#include "src/runtime/plan.hpp"
#include "src/runtime/plan_set.hpp"

namespace troupe {

/// What the compiler must know of one unit (what is gathered and reduced together).
struct UnitShape {
  std::uint64_t gather_bytes = 0, reduce_bytes = 0;  ///< all ranks' parts together
  std::uint64_t all_reduce_bytes = 0;                ///< of one rank's gradient shards of this unit; 0: it owns no parameter
  DType gather_dtype = DType::bf16, reduce_dtype = DType::f32;
  std::uint64_t scales_bytes = 0;  ///< of the amaxes of its weights that travel in fp8, all-reduced before its first gather; 0: it has none
  Nanos forward{0}, backward{0}, scales{0}, gather{0}, accumulate{0}, reduce{0}, all_reduce{0}, optimize{0};  ///< estimated costs
  bool backward_needs_weights = true;       ///< false (embedding): no gather before its backward
  bool keeps_weights_for_backward = false;  ///< true (last unit): its backward follows its forward and reads the same slot
};

/// A rank's step before it is a plan. A value.
struct PlanShape {
  std::vector<UnitShape> units;
  std::uint32_t micro_batches = 1;
  std::uint32_t evaluation_batches = 0;  ///< of the validation set on each rank, after a step that evaluates
  Nanos load{0}, verdict{0}, snapshot{0}, save{0}, keep{0};
  bool keeps = false;                  ///< every step ends with a place where the state may be copied into memory that outlives the process
  bool prefetch_before_reduce = true;  ///< the gather of unit l − 1 stands before the reduce of unit l; false only to show what it costs
  bool weights_resident = false;       ///< gather once a step and keep: needs as many slots of `weights` as units
  std::uint32_t replicas = 1;          ///< of the sharded model; above 1, reduced gradients are summed over dp_replicate once a step
  bool reduce_last = false;            ///< sum micro-batches unsharded and reduce with the last; false: reduce each
  /// Each unit is judged and updated as soon as its gradients are whole, and its gradient shard then serves the unit two further down: one
  /// reduce a step (one micro-batch, or reduce_last).
  bool step_in_backward = false;
};

/// The plan of one step kind: sharded, replicated or both, as the shape says. Errors: no units, no slots, residency with too few slots,
/// an order that these slots can never finish (names the edge). Pure.
[[nodiscard]] Result<Plan> compile_plan(const PlanShape& shape, const SlotCounts& slots, StepKind kind);

/// All kinds. `with_snapshots` false leaves those with a snapshot empty, evaluation_batches = 0 those that evaluate.
[[nodiscard]] Result<PlanSet> compile_plans(const PlanShape& shape, const SlotCounts& slots, bool with_snapshots = true);

}  // namespace troupe
