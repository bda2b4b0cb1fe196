#include "src/runtime/plan_cursor.hpp"

#include <algorithm>
#include <stdexcept>

#include "src/runtime/describe.hpp"

namespace troupe {
namespace {

constexpr std::array<StepKind, step_kind_count> step_kinds{StepKind::train, StepKind::train_and_snapshot, StepKind::train_and_evaluate,
                                                           StepKind::train_snapshot_and_evaluate};
constexpr std::uint64_t furthest_step_ahead = 4096;
std::size_t slot_of(StepKind kind) { return static_cast<std::size_t>(kind); }

}  // namespace

PlanCursor::PlanCursor(std::shared_ptr<const PlanSet> plans, ActorKind actor, Step first)
    : plans_(std::move(plans)), actor_(actor), first_(first), base_(first) {
  for (std::size_t lane = 0; lane < lane_count; ++lane) {
    Position position;
    position.lane = static_cast<LaneKind>(lane);
    position.step = first;
    for (const StepKind kind : step_kinds) {
      const Plan& plan = plans_->of(kind);
      for (std::uint32_t i = 0; i < plan.operations.size(); ++i) {
        if (own(plan.operations[i], position.lane)) position.operations[slot_of(kind)].emplace_back(i);
      }
    }
    if (std::ranges::any_of(position.operations, [](const auto& of_kind) { return !of_kind.empty(); })) positions_.push_back(std::move(position));
  }
  for (const StepKind before : step_kinds) {
    for (const StepKind kind : step_kinds) {
      const Plan& plan = plans_->of(kind);
      auto& of_pair = previous_[slot_of(before)][slot_of(kind)];
      of_pair.resize(plan.operations.size());
      for (std::size_t i = 0; i < plan.operations.size(); ++i) {
        if (plan.operations[i].actor != actor_) continue;
        for (const Fact& fact : plan.operations[i].after_previous) {
          if (const auto found = plans_->of(before).find(fact)) of_pair[i].push_back(*found);
        }
      }
    }
  }
}

PlanCursor::StepState& PlanCursor::state(Step step) {
  if (step < base_ || step.value() - base_.value() > furthest_step_ahead) {
    throw std::out_of_range(std::string(name_of(actor_)) + ": a letter of step " + std::to_string(step.value()) + ", but the oldest open step is " +
                            std::to_string(base_.value()));
  }
  while (states_.size() <= step.value() - base_.value()) states_.push_back({nullptr, {}, std::vector<std::uint8_t>(plans_->longest()), 0});
  return states_[step.value() - base_.value()];
}

const PlanCursor::StepState* PlanCursor::known(Step step) const {
  if (step < base_ || step.value() - base_.value() >= states_.size()) return nullptr;
  return &states_[step.value() - base_.value()];
}

void PlanCursor::begin(Step step, StepKind kind) {
  if (step < base_) return;
  StepState& of_step = state(step);
  if (of_step.plan) return;
  of_step.plan = &plans_->of(kind);
  of_step.kind = kind;
  for (std::size_t i = 0; i < of_step.plan->operations.size(); ++i) {
    if (of_step.plan->operations[i].actor == actor_ && (of_step.flags[i] & completed) == 0) ++of_step.open;
  }
}

void PlanCursor::fact(Step step, OperationIndex operation) {
  if (step < base_) return;
  StepState& of_step = state(step);
  if (operation.value() >= of_step.flags.size()) {
    throw std::out_of_range(std::string(name_of(actor_)) + ": operation " + std::to_string(operation.value()) + " of step " + std::to_string(step.value()) +
                            ", but a plan has at most " + std::to_string(of_step.flags.size()));
  }
  std::uint8_t& flags = of_step.flags[operation.value()];
  if ((flags & completed) != 0) return;
  flags |= completed;
  if (of_step.plan && of_step.plan->operations[operation.value()].actor == actor_) --of_step.open;
  forget_old_steps();
}

void PlanCursor::stop(std::string reason) {
  if (stopped_) return;
  stopped_ = true;
  stop_reason_ = std::move(reason);
}

bool PlanCursor::satisfied(const StepState& of_step, OperationIndex input, LaneKind lane) const {
  const std::uint8_t flags = of_step.flags[input.value()];
  if ((flags & completed) != 0) return true;
  return (flags & posted) != 0 && own(of_step.plan->operations[input.value()], lane);  // the lane's order is the dependency
}

std::optional<PlanCursor::Next> PlanCursor::peek(Position& position) {
  position.blocked = {};
  if (stopped_) return std::nullopt;
  while (true) {
    const StepState* of_step = known(position.step);
    if (!of_step || !of_step->plan) {
      position.blocked = {Reason::step, position.step, {}, {}};
      return std::nullopt;
    }
    const auto& operations = position.operations[slot_of(of_step->kind)];
    if (position.next == operations.size()) {
      ++position.step;
      position.next = 0;
      forget_old_steps();
      continue;
    }
    const OperationIndex index = operations[position.next];
    const PlannedOperation& operation = (*of_step->plan)[index];
    for (const OperationIndex input : operation.after) {
      if (satisfied(*of_step, input, position.lane)) continue;
      position.blocked = {Reason::input, position.step, index, input};
      return std::nullopt;
    }
    const std::vector<OperationIndex>* needed = nullptr;
    if (position.step != first_) {
      const StepState* before = known(Step{position.step.value() - 1});
      needed = &previous_[slot_of(before->kind)][slot_of(of_step->kind)][index.value()];
      for (const OperationIndex input : *needed) {
        if (satisfied(*before, input, position.lane)) continue;
        position.blocked = {Reason::previous, position.step, index, input};
        return std::nullopt;
      }
    }
    return Next{position.step, index, &operation, of_step->plan, needed};
  }
}

void PlanCursor::advance(Position& position) {
  StepState& of_step = state(position.step);
  of_step.flags[position.operations[slot_of(of_step.kind)][position.next].value()] |= posted;
  ++position.next;
}

void PlanCursor::forget_old_steps() {
  Step oldest_needed = positions_.empty() ? base_ : positions_.front().step;
  for (const Position& position : positions_) oldest_needed = std::min(oldest_needed, position.step);
  // The step before the one that a lane stands in is still asked for what came of it.
  while (states_.size() > 1 && base_.next() < oldest_needed && states_.front().plan && states_.front().open == 0) {
    states_.pop_front();
    ++base_;
  }
}

bool PlanCursor::begun(Step step) const {
  const StepState* of_step = known(step);
  return step < base_ || (of_step && of_step->plan);
}

bool PlanCursor::finished(Step step) const {
  if (step < base_) return true;
  const StepState* of_step = known(step);
  return of_step && of_step->plan && of_step->open == 0;
}

bool PlanCursor::idle() const {
  return std::all_of(states_.begin(), states_.end(), [](const StepState& of_step) { return !of_step.plan || of_step.open == 0; });
}

const Plan* PlanCursor::plan_of(Step step) const {
  const StepState* of_step = known(step);
  return of_step ? of_step->plan : nullptr;
}

std::string PlanCursor::describe_blocked(const Blocked& blocked) const {
  const StepState* of_step = known(blocked.step);
  if (blocked.reason == Reason::none) return {};
  const std::string step = "step " + std::to_string(blocked.step.value());
  if (blocked.reason == Reason::step || !of_step || !of_step->plan) return step + " to begin";
  const PlannedOperation& waiting = (*of_step->plan)[blocked.operation];
  if (blocked.reason == Reason::slot) return "a free slot of " + std::string(name_of(*waiting.takes)) + " for " + waiting.name() + ", " + step;
  if (blocked.reason == Reason::previous) {
    const StepState* before = known(Step{blocked.step.value() - 1});
    if (before && before->plan) return describe_as_input((*before->plan)[blocked.input].fact) + " of the step before, " + step;
  }
  return describe_as_input((*of_step->plan)[blocked.input].fact) + ", " + step;
}

std::string PlanCursor::waiting() const {
  if (stopped_) return {};
  std::string text;
  for (const Position& position : positions_) {
    const std::string one = describe_blocked(position.blocked);
    if (one.empty()) continue;
    if (!text.empty()) text += "; ";
    text += one;
  }
  return text;
}

std::optional<EdgeKind> PlanCursor::starved_of(LaneKind lane) const {
  for (const Position& position : positions_) {
    const Blocked& blocked = position.blocked;
    const StepState* of_step = known(blocked.step);
    if (position.lane != lane || blocked.reason == Reason::none || blocked.reason == Reason::step || !of_step || !of_step->plan) continue;
    if (blocked.reason == Reason::slot) return (*of_step->plan)[blocked.operation].takes;
    if (blocked.reason == Reason::input) return (*of_step->plan)[blocked.input].takes;
    const StepState* before = known(Step{blocked.step.value() - 1});
    return before && before->plan ? (*before->plan)[blocked.input].takes : std::nullopt;
  }
  return std::nullopt;
}

std::string PlanCursor::position() const {
  if (stopped_) return "stopped: " + stop_reason_;
  std::string text;
  for (const Position& position : positions_) {
    const StepState* of_step = known(position.step);
    if (!text.empty()) text += ", ";
    text += "step " + std::to_string(position.step.value()) + " " + name_of(position.lane) + " " + std::to_string(position.next);
    if (of_step && of_step->plan) text += " of " + std::to_string(position.operations[slot_of(of_step->kind)].size());
  }
  return text;
}

}  // namespace troupe
