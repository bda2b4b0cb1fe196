#include "src/simulation/operation_costs.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "src/model/shard_memory.hpp"
#include "src/runtime/describe.hpp"

namespace troupe {
namespace {

Nanos nanos(double seconds) { return Nanos{std::llround(seconds * 1e9)}; }

/// Parameters that each rank holds of what a unit owns, with padding.
double own_elements(const TrainingEstimate& estimate, std::size_t unit) { return static_cast<double>(ShardMemory::elements_of(estimate.layout, unit)); }

/// fp32 rows of this rank that a gather reads: of all parameters that the unit uses.
double gathered_elements(const TrainingEstimate& estimate, std::size_t unit) {
  double sum = 0;
  for (const ParameterSlot& slot : estimate.layout.units[unit].slots) {
    const LaidParameter& p = estimate.layout.parameters[slot.parameter];
    sum += static_cast<double>(p.rows_per_rank * p.description.cols);
  }
  return sum;
}

bool is_of_a_unit(OperationKind kind) {
  switch (kind) {
    case OperationKind::load:
    case OperationKind::verdict:
    case OperationKind::snapshot:
    case OperationKind::save:
    case OperationKind::keep:
    case OperationKind::evaluate: return false;
    default: return true;
  }
}

}  // namespace

OperationCosts::OperationCosts(const Inputs& in) : world_(in.options.world), replicas_(in.options.replicas) {
  const DeviceModel& device = in.cluster.device;
  const NetworkModel& network = in.cluster.network;
  const TrainingEstimate& e = in.estimate;
  const GroupGeometry shard{in.options.world, 1}, replicate{in.options.replicas, in.options.world}, world{in.options.world * in.options.replicas, 1};
  const auto memory = [&device](double bytes) { return nanos(bytes / (device.memory_gbps * 1e9 * device.memory_efficiency) + device.kernel_us * 1e-6); };
  const auto host = [&device](double bytes) { return nanos(bytes / (device.host_gbps * 1e9)); };
  double owned = 0;
  std::vector<double> fp8(e.units.size()), amaxes(e.units.size());
  for (const LaidParameter& p : e.layout.parameters) {
    if (!p.fp8) continue;
    fp8[p.unit] += static_cast<double>(p.rows_per_rank * p.description.cols);
    amaxes[p.unit] += sizeof(float);
  }
  for (std::size_t u = 0; u < e.units.size(); ++u) {
    const UnitCost& unit = e.units[u];
    const auto weights = static_cast<double>(unit.weights_bytes), gradients = static_cast<double>(unit.gradients_bytes);
    const double own = own_elements(e, u), part = weights / in.options.world;
    owned += own;
    UnitTimes times;
    times.forward = nanos(time_of(e, u, false, device).total());
    times.backward = nanos(time_of(e, u, true, device).total());
    times.scales = memory(4 * fp8[u]) + time_of(network, CollectiveKind::all_reduce, shard, amaxes[u]);
    times.gather = memory(4 * gathered_elements(e, u) + part) + time_of(network, CollectiveKind::all_gather, shard, weights);
    times.reduce = memory(in.options.world > 1 ? 0 : 2 * gradients) + time_of(network, CollectiveKind::reduce_scatter, shard, gradients);
    if (in.options.sums_micro_batches()) times.reduce += memory(3 * gradients);
    times.accumulate = memory(3 * gradients);
    times.all_reduce = time_of(network, CollectiveKind::all_reduce, replicate, static_cast<double>(unit.shard_bytes));
    times.optimize = memory((in.options.ema_decay > 0 ? 40 : 28) * own);
    units_.push_back(times);
  }
  // A batch's tokens are found, cut and copied on the host.
  load_ = nanos(static_cast<double>(in.options.batch.bytes()) / 200e6 + 20e-6);
  const double judged = in.options.step_in_backward ? owned / static_cast<double>(e.units.size()) : owned;  // a unit's, on average
  verdict_ = memory(4 * judged) + time_of(network, CollectiveKind::all_reduce, world, sizeof(VerdictSums));
  const auto state = static_cast<double>(in.state_bytes);
  snapshot_ = keep_ = host(state);
  save_ = nanos(state * static_cast<double>(std::min<std::int64_t>(network.ranks_per_host, world_ * replicas_)) / (in.cluster.recovery.disk_gbps * 1e9));
}

OperationCosts::Kind OperationCosts::kind_of(const Fact& fact) const {
  const bool collective = fact.kind == OperationKind::gather || fact.kind == OperationKind::reduce || fact.kind == OperationKind::scales;
  const bool shared = fact.kind == OperationKind::all_reduce || (collective && world_ > 1) || (fact.kind == OperationKind::verdict && world_ * replicas_ > 1);
  return {fact.kind, is_of_a_unit(fact.kind) ? class_of(fact.unit.value(), units_.size()) : UnitClass::first, shared};
}

std::string OperationCosts::name_of(const Kind& kind) {
  std::string name = troupe::name_of(kind.operation);
  if (is_of_a_unit(kind.operation)) name += kind.unit == UnitClass::first ? " embedding" : kind.unit == UnitClass::last ? " head" : " block";
  return name + (kind.shared ? ", shared" : "");
}

Nanos OperationCosts::of(const Fact& fact) const {
  const Kind kind = kind_of(fact);
  const UnitTimes& unit = units_[is_of_a_unit(fact.kind) ? fact.unit.value() : 0];
  const Nanos roofline = [&] {
    switch (fact.kind) {
      case OperationKind::load: return load_;
      case OperationKind::scales: return unit.scales;
      case OperationKind::gather: return unit.gather;
      case OperationKind::forward: return unit.forward;
      case OperationKind::backward: return unit.backward;
      case OperationKind::accumulate: return unit.accumulate;
      case OperationKind::reduce: return unit.reduce;
      case OperationKind::all_reduce: return unit.all_reduce;
      case OperationKind::verdict:
      case OperationKind::evaluate: return verdict_;  // sums of a few numbers both
      case OperationKind::optimize: return unit.optimize;
      case OperationKind::snapshot: return snapshot_;
      case OperationKind::save: return save_;
      case OperationKind::keep: return keep_;
    }
    return Nanos{0};
  }();
  auto factor = factors_.find(kind);
  if (factor == factors_.end()) factor = factors_.find({kind.operation, kind.unit, !kind.shared});
  return factor == factors_.end() ? roofline : nanos(seconds_of(roofline) * factor->second.at(seconds_of(roofline)));
}

double OperationCosts::Factor::at(double roofline) const {
  if (points_.empty()) return 1;
  const auto above = points_.lower_bound(roofline);
  if (above == points_.begin()) return above->second;
  if (above == points_.end()) return points_.rbegin()->second;
  const auto below = std::prev(above);
  if (below->first <= 0) return above->second;
  const double part = std::log(roofline / below->first) / std::log(above->first / below->first);  // sizes differ by factors
  return below->second + part * (above->second - below->second);
}

}  // namespace troupe
