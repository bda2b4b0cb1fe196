#include <fmt/format.h>

#include "actors/coordinator.hpp"

/// Steps that went wrong though nothing has failed: losses that are not finite, or spike.
namespace troupe {

/// Steps that are told for the first time, and those that were rolled back then, when they run again.
void Coordinator::guard(const StepRecord& record) {
  if (phase_ != Phase::running || !options_.guard) return;
  const GuardOptions guard = options_.guard(record.step);
  const bool last = record.step == horizon_->last_step();  // nothing goes on after it
  if (rolled_back_.contains(record.step)) return roll_back(record.step, "it was rolled back before", guard);
  const RankReport& told = record.common;
  if (told.outcome == VerdictOutcome::skip) {
    const std::string why = describe_nonfinite(told);
    if (guard.stop_at_nonfinite)
      return raise({.cause = fmt::format("step {}: {}; {} (training.guard.nonfinite = \"stop\")", record.step.value(), why,
                                         options_.steps_in_backward
                                             ? "layers that were updated before this was known are not used, nor saved: the run goes on from a checkpoint"
                                             : "its weights are those of the step before"),
                    .rank = {},
                    .signal = 0,
                    .final = true,
                    .last_word = true});
    if (guard.roll_back_at_nonfinite && !last) roll_back(record.step, why, guard);
    return;
  }
  const auto median = guard.spike_factor > 0 ? losses_.median() : std::nullopt;
  if (!median || told.loss <= guard.spike_factor * *median) return losses_.add(told.loss);
  const std::string why = fmt::format("its loss {:.4f} is above {} times the median of the steps before, {:.4f}", told.loss, guard.spike_factor, *median);
  if (guard.stop_at_spike)
    return raise({.cause = fmt::format("step {}: {} (training.guard.spike = \"stop\")", record.step.value(), why),
                  .rank = {},
                  .signal = 0,
                  .final = true,
                  .last_word = true});
  if (!last) roll_back(record.step, why, guard);
}

/// All ranks come to rest and load an earlier state; no process is started again. Steps that were begun after this one are void: nobody has told them.
void Coordinator::roll_back(Step step, const std::string& why, const GuardOptions& guard) {
  const bool fresh = rolled_back_.insert(step).second;
  if (rolled_back_.size() > guard.most)
    return raise({.cause = fmt::format("step {}: {}; training was rolled back {} times already (training.guard.rollbacks)", step.value(), why, guard.most),
                  .rank = {},
                  .signal = 0,
                  .final = true,
                  .last_word = true});
  const EpochOrigin point = restore_.way_back(step, guard.steps_back);
  restore_.epoch_ended();
  restore_.go_back_to(point, step);
  history_->pin(step);
  if (fresh) events_.rolled_back(step, point, why);
  set_aside_checkpoints(point.step, step);
  cause_ = Fault{.cause = fmt::format("step {}: {}", step.value(), why), .rank = {}};
  enter(Phase::recovering);
  resting_.clear();
  for (const Rank member : epoch_->begun.members) tell_end(member);
}

/// Else whoever resumes the run later would go on from a state that it has left. Behind what is being sealed on the same lane.
void Coordinator::set_aside_checkpoints(Step after, Step until) {
  if (!options_.set_aside || options_.storage == nullptr) return;
  if (sealed_ && *sealed_ > after) sealed_ = restore_.newest_on_disk();
  LaneOperation operation;
  operation.name = fmt::format("set aside checkpoints after step {}", after.value());
  operation.where = {epoch(), until, {}, {}};
  operation.work = [set_aside = options_.set_aside, after, until](Stream&) { set_aside(after, until); };
  operation.done = [&log = runtime().log](const Outcome& outcome) {
    if (!outcome.ok()) log.warning("checkpoints that training was rolled back over stay where they are: " + outcome.cause);
  };
  options_.storage->post(std::move(operation));
}

}  // namespace troupe
