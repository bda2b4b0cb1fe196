#include "src/plan/compiler.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>

#include "src/device/verdict.hpp"
#include "src/runtime/describe.hpp"

namespace troupe {
namespace {

constexpr std::array<LaneKind, lane_count> lanes_by_priority{LaneKind::disk,      LaneKind::compute, LaneKind::comm,
                                                             LaneKind::optimizer, LaneKind::copy,    LaneKind::storage};

/// Builds the lanes' own orders first, then merges them into the device's total order.
class Compilation {
 public:
  Compilation(const PlanShape& shape, const SlotCounts& slots, StepKind kind) : shape_(shape), slots_(slots), kind_(kind) {}

  Result<Plan> run() {
    add_loads();
    add_communication();
    add_computation();
    add_state_changes();
    if (evaluates(kind_)) add_evaluation();
    mark_last_readers();
    return merge();
  }

 private:
  using Index = std::size_t;  // into drafts_
  struct Draft {
    PlannedOperation operation;
    std::vector<Index> after, reads;
    std::vector<Index> last_reads;
  };

  [[nodiscard]] std::uint32_t last_unit() const { return static_cast<std::uint32_t>(shape_.units.size()) - 1; }
  [[nodiscard]] Fact last_optimize() const { return {OperationKind::optimize, Unit{shape_.step_in_backward ? 0 : last_unit()}, Micro{0}, false}; }

  Index add(Fact fact, ActorKind actor, LaneKind lane, Nanos cost) {
    Draft draft;
    draft.operation.fact = fact;
    draft.operation.actor = actor;
    draft.operation.lane = lane;
    draft.operation.cost = cost;
    drafts_.push_back(std::move(draft));
    by_fact_.emplace(fact, drafts_.size() - 1);
    lanes_[static_cast<std::size_t>(lane)].push_back(drafts_.size() - 1);
    return drafts_.size() - 1;
  }
  PlannedOperation& operation(Index i) { return drafts_[i].operation; }
  [[nodiscard]] Index find(const Fact& fact) const {
    const auto found = by_fact_.find(fact);
    return found == by_fact_.end() ? drafts_.size() : found->second;
  }
  [[nodiscard]] bool has(const Fact& fact) const { return find(fact) < drafts_.size(); }

  void add_loads() {
    for (std::uint32_t m = 0; m < shape_.micro_batches; ++m) add_load(m);
  }
  void add_load(std::uint32_t micro) {
    const Index load = add({OperationKind::load, Unit{}, Micro{micro}, false}, ActorKind::data_loader, LaneKind::disk, shape_.load);
    operation(load).takes = EdgeKind::batches;
  }

  /// What leaves the unit's parameters as the next step reads them. A tied parameter is its first unit's, whose optimizer stands before those of its readers.
  /// Where units step in the backward pass the one that the next step reads first is the last: then all of the state stands.
  [[nodiscard]] Fact optimized(std::uint32_t unit) const {
    return shape_.step_in_backward ? last_optimize() : Fact{OperationKind::optimize, Unit{unit}, {}, false};
  }

  /// The amaxes over all ranks of the unit's weights that travel in fp8, and their scales.
  std::optional<Index> add_scales(std::uint32_t micro, std::uint32_t unit) {
    const UnitShape& of = shape_.units[unit];
    if (of.scales_bytes == 0) return std::nullopt;
    const Index scales = add({OperationKind::scales, Unit{unit}, Micro{micro}, false}, ActorKind::sharding, LaneKind::comm, of.scales);
    use(scales, CommunicatorKind::dp_shard, of.scales_bytes, DType::f32);
    return scales;
  }

  void add_gather(std::uint32_t micro, std::uint32_t unit, bool backward) {
    const UnitShape& of = shape_.units[unit];
    if (micro == 0 && !backward) {
      if (const auto scales = add_scales(micro, unit)) operation(*scales).after_previous.push_back(optimized(unit));
    }
    const Index gather = add({OperationKind::gather, Unit{unit}, Micro{micro}, backward}, ActorKind::sharding, LaneKind::comm, of.gather);
    use(gather, CommunicatorKind::dp_shard, of.gather_bytes, of.gather_dtype);
    operation(gather).takes = EdgeKind::weights;
    operation(gather).after_previous.push_back(optimized(unit));  // the optimizer of later units runs beside it
    if (of.scales_bytes > 0) drafts_[gather].after.push_back(find({OperationKind::scales, Unit{unit}, {}, false}));
  }

  [[nodiscard]] bool is_last(std::uint32_t micro) const { return micro + 1 == shape_.micro_batches; }

  /// What takes the gradients of this backward: its own reduce, or the sum that the last micro-batch reduces.
  [[nodiscard]] Fact taker_of(std::uint32_t micro, std::uint32_t unit) const {
    const bool sums = shape_.reduce_last && !is_last(micro);
    return {sums ? OperationKind::accumulate : OperationKind::reduce, Unit{unit}, Micro{micro}, false};
  }

  void add_reduce(std::uint32_t micro, std::uint32_t unit) {
    const UnitShape& of = shape_.units[unit];
    const Fact taker = taker_of(micro, unit);
    if (taker.kind == OperationKind::accumulate) {
      add(taker, ActorKind::sharding, LaneKind::comm, of.accumulate);
      return;
    }
    use(add(taker, ActorKind::sharding, LaneKind::comm, of.reduce), CommunicatorKind::dp_shard, of.reduce_bytes, of.reduce_dtype);
    if (!sums_over_replicas(micro, unit)) return;
    const Index all_reduce = add({OperationKind::all_reduce, Unit{unit}, Micro{micro}, false}, ActorKind::sharding, LaneKind::comm, of.all_reduce);
    use(all_reduce, CommunicatorKind::dp_replicate, of.all_reduce_bytes, of.reduce_dtype);
    drafts_[all_reduce].after.push_back(find(taker));
  }

  void use(Index index, CommunicatorKind communicator, std::uint64_t bytes, DType dtype) {
    operation(index).communicator = communicator;
    operation(index).bytes = bytes;
    operation(index).dtype = dtype;
  }

  /// A replica's gradients are whole when the last micro-batch is reduced: summed once a step, whatever was reduced before.
  [[nodiscard]] bool sums_over_replicas(std::uint32_t micro, std::uint32_t unit) const {
    return shape_.replicas > 1 && is_last(micro) && shape_.units[unit].all_reduce_bytes > 0;
  }

  [[nodiscard]] bool gathers_for_backward(std::uint32_t unit) const {
    const UnitShape& of = shape_.units[unit];
    return !shape_.weights_resident && of.backward_needs_weights && !of.keeps_weights_for_backward;
  }

  /// One micro-batch: G0 … Gn | Gn' Gn-1' Rn Gn-2' Rn-1 … G0' R1 R0; each last R is followed by its sum over replicas, the step's first G of a unit with
  /// fp8 weights stands behind their scales.
  void add_communication() {
    for (std::uint32_t m = 0; m < shape_.micro_batches; ++m) {
      if (!shape_.weights_resident || m == 0) {
        for (std::uint32_t u = 0; u <= last_unit(); ++u) add_gather(m, u, false);
      }
      if (gathers_for_backward(last_unit())) add_gather(m, last_unit(), true);
      for (std::uint32_t u = last_unit() + 1; u-- > 0;) {
        const bool prefetch = u > 0 && gathers_for_backward(u - 1);
        if (prefetch && shape_.prefetch_before_reduce) add_gather(m, u - 1, true);
        add_reduce(m, u);
        if (shape_.step_in_backward && is_last(m) && u > 0) add_verdict(Unit{u});
        if (prefetch && !shape_.prefetch_before_reduce) add_gather(m, u - 1, true);
      }
    }
    const Index verdict = add_verdict(Unit{0});
    for (std::uint32_t u = 1; u <= last_unit(); ++u) drafts_[verdict].after.push_back(whole_gradients(u));
  }

  /// Unit 0's is the step's; those of other units stand in a step that updates in the backward pass.
  Index add_verdict(Unit unit) {
    const Index verdict = add({OperationKind::verdict, unit, {}, false}, ActorKind::sharding, LaneKind::comm, shape_.verdict);
    use(verdict, CommunicatorKind::world, sizeof(VerdictSums), DType::f64);
    operation(verdict).after_previous.push_back(last_optimize());
    drafts_[verdict].after.push_back(whole_gradients(unit.value()));
    return verdict;
  }

  /// The operation with which the unit's gradient shards hold the step's sum over all ranks.
  [[nodiscard]] Index whole_gradients(std::uint32_t unit) const {
    const std::uint32_t last = shape_.micro_batches - 1;
    return find({sums_over_replicas(last, unit) ? OperationKind::all_reduce : OperationKind::reduce, Unit{unit}, Micro{last}, false});
  }

  void add_computation() {
    for (std::uint32_t m = 0; m < shape_.micro_batches; ++m) {
      for (std::uint32_t u = 0; u <= last_unit(); ++u) add_pass(m, u, false);
      for (std::uint32_t u = last_unit() + 1; u-- > 0;) add_pass(m, u, true);
    }
  }

  void add_pass(std::uint32_t micro, std::uint32_t unit, bool backward) {
    const UnitShape& of = shape_.units[unit];
    const OperationKind kind = backward ? OperationKind::backward : OperationKind::forward;
    const Index pass = add({kind, Unit{unit}, Micro{micro}, false}, ActorKind::compute, LaneKind::compute, backward ? of.backward : of.forward);
    Draft& draft = drafts_[pass];
    const auto read = [&](const Fact& fact) {
      draft.after.push_back(find(fact));
      draft.reads.push_back(find(fact));
    };
    read({OperationKind::load, {}, Micro{micro}, false});
    if (!backward || of.backward_needs_weights) {
      read({OperationKind::gather, Unit{unit}, Micro{shape_.weights_resident ? 0 : micro}, backward && gathers_for_backward(unit)});
    }
    if (!backward) return;
    draft.operation.takes = EdgeKind::gradients;
    const Index taker = find(taker_of(micro, unit));
    drafts_[taker].after.push_back(pass);
    drafts_[taker].reads.push_back(pass);
  }

  void add_state_changes() {
    for (std::uint32_t i = 0; i <= last_unit(); ++i) {
      const std::uint32_t u = shape_.step_in_backward ? last_unit() - i : i;
      const Index optimize = add({OperationKind::optimize, Unit{u}, {}, false}, ActorKind::sharding, LaneKind::optimizer, shape_.units[u].optimize);
      drafts_[optimize].after.push_back(find({OperationKind::verdict, Unit{shape_.step_in_backward ? u : 0}, {}, false}));
      if (shape_.step_in_backward && u >= 2) {  // whose gradient shard this one's becomes
        drafts_[find({OperationKind::reduce, Unit{u - 2}, Micro{shape_.micro_batches - 1}, false})].after.push_back(optimize);
      }
      operation(optimize).after_previous.push_back({OperationKind::snapshot, {}, {}, false});                // it reads what this overwrites
      if (shape_.keeps) operation(optimize).after_previous.push_back({OperationKind::keep, {}, {}, false});  // so does this
    }
    if (snapshots(kind_)) add_snapshot();
    if (!shape_.keeps) return;
    const Index keep = add({OperationKind::keep, {}, {}, false}, ActorKind::checkpoint, LaneKind::copy, shape_.keep);
    drafts_[keep].after.push_back(find(last_optimize()));
  }

  void add_snapshot() {
    const Index snapshot = add({OperationKind::snapshot, {}, {}, false}, ActorKind::checkpoint, LaneKind::copy, shape_.snapshot);
    operation(snapshot).takes = EdgeKind::snapshots;
    drafts_[snapshot].after.push_back(find(last_optimize()));
    const Index save = add({OperationKind::save, {}, {}, false}, ActorKind::checkpoint, LaneKind::storage, shape_.save);
    drafts_[save].after.push_back(snapshot);
    drafts_[save].reads.push_back(snapshot);
  }

  /// Forwards of the validation set through the new weights, then the sum of its losses. Its batches count on from the step's micro-batches.
  /// Nothing here writes state: what follows is the same step as without.
  void add_evaluation() {
    const Index stands = find(last_optimize());
    const std::uint32_t first = shape_.micro_batches, end = first + shape_.evaluation_batches;
    for (std::uint32_t m = first; m < end; ++m) {
      add_load(m);
      for (std::uint32_t u = 0; u <= last_unit(); ++u) {
        if (!shape_.weights_resident || m == first) add_evaluation_gather(m, u, stands);
        const Index pass = add({OperationKind::forward, Unit{u}, Micro{m}, false}, ActorKind::compute, LaneKind::compute, shape_.units[u].forward);
        for (const Fact& fact :
             {Fact{OperationKind::load, {}, Micro{m}, false}, Fact{OperationKind::gather, Unit{u}, Micro{shape_.weights_resident ? first : m}, false}}) {
          drafts_[pass].after.push_back(find(fact));
          drafts_[pass].reads.push_back(find(fact));
        }
      }
    }
    const Index sum = add({OperationKind::evaluate, {}, {}, false}, ActorKind::sharding, LaneKind::comm, shape_.verdict);
    use(sum, CommunicatorKind::world, 2 * sizeof(double), DType::f64);
    drafts_[sum].after.push_back(find({OperationKind::forward, Unit{last_unit()}, Micro{end - 1}, false}));
  }
  void add_evaluation_gather(std::uint32_t micro, std::uint32_t unit, Index stands) {
    const UnitShape& of = shape_.units[unit];
    if (micro == shape_.micro_batches) {
      if (const auto scales = add_scales(micro, unit)) drafts_[*scales].after.push_back(stands);
    }
    const Index gather = add({OperationKind::gather, Unit{unit}, Micro{micro}, false}, ActorKind::sharding, LaneKind::comm, of.gather);
    use(gather, CommunicatorKind::dp_shard, of.gather_bytes, of.gather_dtype);
    operation(gather).takes = EdgeKind::weights;
    drafts_[gather].after.push_back(of.scales_bytes > 0 ? find({OperationKind::scales, Unit{unit}, Micro{shape_.micro_batches}, false}) : stands);
  }

  /// Of the readers of a slot, all on one lane, the last in that lane's order sends it home.
  void mark_last_readers() {
    std::vector<Index> last(drafts_.size(), drafts_.size());
    for (const auto& lane : lanes_) {
      for (const Index reader : lane) {
        for (const Index producer : drafts_[reader].reads) last[producer] = reader;
      }
    }
    for (Index producer = 0; producer < drafts_.size(); ++producer) {
      if (last[producer] < drafts_.size()) drafts_[last[producer]].last_reads.push_back(producer);
    }
  }

  using Free = std::array<std::uint32_t, edge_count>;
  using Heads = std::array<std::size_t, lane_count>;

  /// Takes from the lanes, each in its own order, what can be issued after what was taken before: first a prefetch into a slot that nobody
  /// used yet, which waits for nothing; then compute, which queues behind running work; then communication, which waits for a slot or a
  /// peer. Stuck: no total order exists for these slots.
  Result<Plan> merge() {
    Plan plan;
    plan.kind = kind_;
    std::vector<std::uint32_t> place(drafts_.size(), unplaced);
    Free free{};
    for (std::size_t edge = 0; edge < edge_count; ++edge) free[edge] = slots_.of(static_cast<EdgeKind>(edge));
    Free fresh = free;
    Heads next{};
    while (plan.operations.size() < drafts_.size()) {
      const std::optional<LaneKind> lane = choose(next, place, free, fresh);
      if (!lane) return stuck(next, place, free);
      const Index index = head(*lane, next).value();
      const Draft* const chosen = &drafts_[index];
      ++next[static_cast<std::size_t>(*lane)];
      place[index] = static_cast<std::uint32_t>(plan.operations.size());
      if (chosen->operation.takes) {
        const auto edge = static_cast<std::size_t>(*chosen->operation.takes);
        --free[edge];
        if (fresh[edge] > 0) --fresh[edge];
      }
      for (const Index producer : chosen->last_reads) ++free[static_cast<std::size_t>(*drafts_[producer].operation.takes)];
      plan.operations.push_back(placed(*chosen, place));
    }
    return plan;
  }

  static constexpr std::uint32_t unplaced = 0xffffffffU;

  [[nodiscard]] std::optional<Index> head(LaneKind lane, const Heads& next) const {
    const auto& queue = lanes_[static_cast<std::size_t>(lane)];
    const std::size_t at = next[static_cast<std::size_t>(lane)];
    return at < queue.size() ? std::optional(queue[at]) : std::nullopt;
  }
  [[nodiscard]] std::optional<LaneKind> choose(const Heads& next, const std::vector<std::uint32_t>& place, const Free& free, const Free& fresh) const {
    const auto placeable = [&](LaneKind lane) { return head(lane, next) && can_place(drafts_[*head(lane, next)], place, free); };
    if (placeable(LaneKind::comm)) {
      const auto& takes = drafts_[*head(LaneKind::comm, next)].operation.takes;
      if (takes && fresh[static_cast<std::size_t>(*takes)] > 0) return LaneKind::comm;
    }
    for (const LaneKind lane : lanes_by_priority) {
      if (placeable(lane)) return lane;
    }
    return std::nullopt;
  }
  static bool can_place(const Draft& draft, const std::vector<std::uint32_t>& place, const Free& free) {
    if (draft.operation.takes && free[static_cast<std::size_t>(*draft.operation.takes)] == 0) return false;
    return std::all_of(draft.after.begin(), draft.after.end(), [&](Index i) { return place[i] != unplaced; });
  }

  static PlannedOperation placed(const Draft& draft, const std::vector<std::uint32_t>& place) {
    PlannedOperation operation = draft.operation;
    for (const Index i : draft.after) operation.after.emplace_back(place[i]);
    for (const Index i : draft.reads) operation.reads.emplace_back(place[i]);
    for (const Index i : draft.last_reads) operation.last_reads.emplace_back(place[i]);
    return operation;
  }

  Error stuck(const Heads& next, const std::vector<std::uint32_t>& place, const Free& free) const {
    for (std::size_t lane = 0; lane < lane_count; ++lane) {
      if (next[lane] == lanes_[lane].size()) continue;
      const Draft& draft = drafts_[lanes_[lane][next[lane]]];
      if (!draft.operation.takes || can_place(draft, place, free) || free[static_cast<std::size_t>(*draft.operation.takes)] > 0) continue;
      const EdgeKind edge = *draft.operation.takes;
      return {"no order of this step can finish: " + draft.operation.name() + " waits for ever for one of the " + std::to_string(slots_.of(edge)) +
              " slots of " + name_of(edge) + "; raise [slots] " + name_of(edge)};
    }
    return {"no order of this step can finish: its operations wait for each other"};
  }

  const PlanShape& shape_;
  const SlotCounts& slots_;
  const StepKind kind_;
  std::vector<Draft> drafts_;
  std::map<Fact, Index> by_fact_;
  std::array<std::vector<Index>, lane_count> lanes_;
};

Result<void> check(const PlanShape& shape, const SlotCounts& slots) {
  if (shape.units.empty()) return Error{"a plan needs at least one unit to gather, compute and reduce; none was given"};
  if (shape.micro_batches == 0) return Error{"a plan needs at least one micro-batch; 0 were given"};
  for (std::size_t i = 0; i < edge_count; ++i) {
    const auto edge = static_cast<EdgeKind>(i);
    if (slots.of(edge) == 0) return Error{std::string("[slots] ") + name_of(edge) + " = 0: nothing could ever be produced; give at least 1"};
  }
  if (shape.step_in_backward && shape.micro_batches > 1 && !shape.reduce_last) {
    return Error{"a unit is updated in the backward pass when its gradients are whole, but these are reduced with each of the " +
                 std::to_string(shape.micro_batches) + " micro-batches: sum them and reduce with the last"};
  }
  if (shape.weights_resident && slots.weights < shape.units.size()) {
    return Error{"weights are to stay resident, which takes one slot of weights for each of the " + std::to_string(shape.units.size()) +
                 " units, but [slots] weights = " + std::to_string(slots.weights)};
  }
  return {};
}

}  // namespace

Result<Plan> compile_plan(const PlanShape& shape, const SlotCounts& slots, StepKind kind) {
  if (const Result<void> checked = check(shape, slots); !checked) return checked.error();
  return Compilation(shape, slots, kind).run();
}

Result<PlanSet> compile_plans(const PlanShape& shape, const SlotCounts& slots, bool with_snapshots) {
  PlanSet plans;
  const std::array<Plan*, step_kind_count> all{&plans.train, &plans.train_and_snapshot, &plans.train_and_evaluate, &plans.train_snapshot_and_evaluate};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto kind = static_cast<StepKind>(i);
    all[i]->kind = kind;
    if ((snapshots(kind) && !with_snapshots) || (evaluates(kind) && shape.evaluation_batches == 0)) continue;
    Result<Plan> plan = compile_plan(shape, slots, kind);
    if (!plan) return plan.error();
    *all[i] = std::move(*plan);
  }
  return plans;
}

}  // namespace troupe
