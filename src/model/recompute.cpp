#include "src/model/recompute.hpp"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

namespace troupe {
namespace {

constexpr double nominal_flops_per_nano = 50.0, nominal_bytes_per_nano = 5.0;

std::string_view module_of(const ParameterDescription& parameter) {
  constexpr std::string_view suffix = ".weight";
  const std::string_view name = parameter.name;
  return name.ends_with(suffix) ? name.substr(0, name.size() - suffix.size()) : name;
}

/// Of a block's matrix products the first, third, fifth … are kept, but for those of a shape that is always computed again; and attention.
/// A rotation works in place, so where the product before it is kept, its result is.
std::vector<bool> keep_operations(const UnitDescription& unit, const std::vector<std::string>& always_again) {
  std::set<std::pair<std::int64_t, std::int64_t>> shapes;
  for (const ParameterDescription& p : unit.parameters) {
    const auto named = [&](const std::string& part) { return module_of(p).find(part) != std::string_view::npos; };
    if (p.linear && std::any_of(always_again.begin(), always_again.end(), named)) shapes.emplace(p.rows, p.cols);
  }
  std::vector<bool> kept(unit.tape.steps.size(), false), value_kept(unit.tape.values.size(), false);
  std::size_t products = 0;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const TapeStep& step = unit.tape.steps[i];
    if (step.type == OperationType::attention) kept[i] = true;
    if (step.type == OperationType::rotary) kept[i] = value_kept[step.in[0]];
    if (step.type == OperationType::linear) {
      const ParameterDescription& p = unit.parameters[static_cast<std::size_t>(step.parameter)];
      kept[i] = !shapes.contains({p.rows, p.cols}) && products++ % 2 == 0;
    }
    for (const ValueIndex v : step.out) value_kept[v] = kept[i];
  }
  return kept;
}

}  // namespace

bool is_block(const Tape& tape) noexcept { return tape.has_input && tape.output >= 0; }

std::vector<bool> overwritten_values(const Tape& tape) {
  std::vector<bool> overwritten(tape.values.size(), false);
  for (const TapeStep& step : tape.steps) {
    if (step.type == OperationType::rotary || step.type == OperationType::cross_entropy) overwritten[step.in[0]] = true;
  }
  return overwritten;
}

std::vector<bool> steps_to_run_again(const Tape& tape, const std::vector<bool>& kept) {
  std::vector<bool> again(tape.steps.size(), false), wanted(tape.values.size(), false);
  const std::vector<bool> overwritten = overwritten_values(tape);
  for (const TapeStep& step : tape.steps) {
    for (const ValueIndex v : read_by_backward(step)) wanted[v] = true;
  }
  for (std::size_t i = tape.steps.size(); i-- > 0;) {
    const TapeStep& step = tape.steps[i];
    again[i] = std::any_of(step.out.begin(), step.out.end(), [&](ValueIndex v) { return wanted[v] && (!kept[i] || overwritten[v]); });
    if (!again[i]) continue;
    for (const ValueIndex v : step.in) wanted[v] = true;
  }
  return again;
}

KeptSteps keep_by_rule(const ModelDescription& model, const RecomputePolicy& policy) {
  KeptSteps kept;
  std::uint32_t block = 0;
  for (const UnitDescription& unit : model.units) {
    kept.emplace_back(unit.tape.steps.size(), true);
    if (!is_block(unit.tape)) continue;
    ++block;
    const bool whole = policy.mode == Recompute::full || (policy.mode == Recompute::every && block % policy.every == 0);
    if (whole) kept.back().assign(unit.tape.steps.size(), false);
    if (policy.mode == Recompute::operations) kept.back() = keep_operations(unit, policy.always_again);
  }
  return kept;
}

double nominal_nanos(const OperationCost& cost) noexcept {
  return std::max(cost.forward_flops / nominal_flops_per_nano, cost.forward_bytes / nominal_bytes_per_nano);
}

RecomputeCost cost_of_running_again(const UnitDescription& unit, const TapeSizes& sizes, const std::vector<bool>& kept) {
  RecomputeCost sum;
  if (!is_block(unit.tape)) return sum;
  const std::vector<bool> again = steps_to_run_again(unit.tape, kept);
  for (std::size_t i = 0; i < again.size(); ++i) {
    if (!again[i]) continue;
    const TapeStep& step = unit.tape.steps[i];
    const std::int64_t weights = step.parameter >= 0 ? unit.parameters[static_cast<std::size_t>(step.parameter)].elements() : 0;
    const OperationCost cost = cost_of(step, unit.tape, sizes, weights);
    sum.flops += cost.forward_flops;
    sum.nanos += nominal_nanos(cost);
  }
  return sum;
}

}  // namespace troupe
