#include "src/runtime/plan.hpp"

#include <xxhash.h>

#include <algorithm>

#include "src/runtime/describe.hpp"

namespace troupe {

const char* name_of(OperationKind kind) noexcept {
  switch (kind) {
    case OperationKind::load: return "load";
    case OperationKind::scales: return "scales";
    case OperationKind::gather: return "gather";
    case OperationKind::forward: return "forward";
    case OperationKind::backward: return "backward";
    case OperationKind::accumulate: return "accumulate";
    case OperationKind::reduce: return "reduce";
    case OperationKind::all_reduce: return "all_reduce";
    case OperationKind::verdict: return "verdict";
    case OperationKind::optimize: return "optimize";
    case OperationKind::snapshot: return "snapshot";
    case OperationKind::save: return "save";
    case OperationKind::keep: return "keep";
    case OperationKind::evaluate: return "evaluate";
  }
  return "unknown";
}

const char* name_of(CommunicatorKind kind) noexcept {
  switch (kind) {
    case CommunicatorKind::none: return "none";
    case CommunicatorKind::dp_shard: return "dp_shard";
    case CommunicatorKind::dp_replicate: return "dp_replicate";
    case CommunicatorKind::world: return "world";
  }
  return "unknown";
}

std::string describe(const Where& where) {
  return "step " + std::to_string(where.step.value()) + ", micro-batch " + std::to_string(where.micro.value()) + ", L" + std::to_string(where.unit.value());
}

namespace {

std::string of_micro(const Fact& fact) { return fact.micro == Micro{0} ? "" : " m" + std::to_string(fact.micro.value()); }
std::string layer(const Fact& fact) { return "L" + std::to_string(fact.unit.value()); }

}  // namespace

std::string describe_as_input(const Fact& fact) {
  switch (fact.kind) {
    case OperationKind::load: return "batch m" + std::to_string(fact.micro.value());
    case OperationKind::scales: return "scales of " + layer(fact) + of_micro(fact);
    case OperationKind::gather: return "weights of " + layer(fact) + of_micro(fact) + (fact.backward ? " (backward)" : "");
    case OperationKind::backward: return "gradients of " + layer(fact) + of_micro(fact);
    case OperationKind::accumulate: return "summed gradients of " + layer(fact) + of_micro(fact);
    case OperationKind::reduce: return "reduced gradients of " + layer(fact) + of_micro(fact);
    case OperationKind::all_reduce: return "gradients of " + layer(fact) + " from all replicas";
    case OperationKind::verdict: return fact.unit == Unit{0} ? "the verdict" : "the verdict on " + layer(fact);
    case OperationKind::optimize: return "the optimizer of " + layer(fact);
    case OperationKind::snapshot: return "the snapshot";
    case OperationKind::keep: return "the snapshot in memory";
    case OperationKind::evaluate: return "the loss of the validation set";
    default: return std::string(name_of(fact.kind)) + " " + layer(fact) + of_micro(fact);
  }
}

std::string PlannedOperation::name() const {
  std::string text = name_of(fact.kind);
  switch (fact.kind) {
    case OperationKind::verdict: return fact.unit == Unit{0} ? text : text + " " + layer(fact);
    case OperationKind::snapshot:
    case OperationKind::keep:
    case OperationKind::save:
    case OperationKind::evaluate: return text;
    case OperationKind::load: return text + " m" + std::to_string(fact.micro.value());
    default: break;
  }
  text += " " + layer(fact) + of_micro(fact);
  if (fact.kind == OperationKind::gather && fact.backward) text += " (backward)";
  return text;
}

std::uint32_t SlotCounts::of(EdgeKind edge) const noexcept {
  switch (edge) {
    case EdgeKind::batches: return batches;
    case EdgeKind::weights: return weights;
    case EdgeKind::gradients: return gradients;
    case EdgeKind::snapshots: return snapshots;
  }
  return 0;
}

std::optional<OperationIndex> Plan::find(const Fact& fact) const {
  const auto found = std::find_if(operations.begin(), operations.end(), [&](const PlannedOperation& operation) { return operation.fact == fact; });
  if (found == operations.end()) return std::nullopt;
  return OperationIndex{static_cast<std::uint32_t>(found - operations.begin())};
}

std::uint64_t Plan::hash(CommunicatorKind communicator) const {
  std::vector<std::uint64_t> words;
  for (const PlannedOperation& operation : operations) {
    if (operation.communicator != communicator) continue;
    const Fact& fact = operation.fact;
    words.insert(words.end(), {static_cast<std::uint64_t>(fact.kind), fact.unit.value(), fact.micro.value(), std::uint64_t{fact.backward}, operation.bytes,
                               static_cast<std::uint64_t>(operation.dtype)});
  }
  return XXH3_64bits(words.data(), words.size() * sizeof(std::uint64_t));
}

}  // namespace troupe
