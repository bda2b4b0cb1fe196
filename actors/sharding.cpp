#include "actors/sharding.hpp"

#include <algorithm>

#include "src/runtime/join_digests.hpp"

namespace troupe {
namespace {

/// The last operation of Sharding in a step: with it the state stands.
OperationIndex last_of(const Plan& plan, bool changes_state = false) {
  for (std::size_t i = plan.operations.size(); i-- > 0;) {
    const PlannedOperation& operation = plan.operations[i];
    if (operation.actor == ActorKind::sharding && (!changes_state || operation.fact.kind == OperationKind::optimize))
      return OperationIndex{static_cast<std::uint32_t>(i)};
  }
  throw std::invalid_argument("a plan without an operation of Sharding: nothing would end the step");
}

std::uint32_t micro_batches_of(const Plan& plan) {
  return static_cast<std::uint32_t>(std::count_if(plan.operations.begin(), plan.operations.end(),
                                                  [](const PlannedOperation& operation) {  // the validation set has no backward
                                                    return operation.fact.kind == OperationKind::backward && operation.fact.unit == Unit{0};
                                                  }));
}

schema::StepOutcome to_schema(VerdictOutcome outcome) {
  switch (outcome) {
    case VerdictOutcome::commit: return schema::StepOutcome::COMMIT;
    case VerdictOutcome::skip: return schema::StepOutcome::SKIP;
    case VerdictOutcome::void_: break;
  }
  return schema::StepOutcome::VOID;
}

}  // namespace

Sharding::Sharding(caf::actor_config& config, const ActorSeat& seat, std::shared_ptr<const RankGround> ground)
    : StepActor(config, seat, std::move(ground), EdgeKind::weights, {LaneKind::comm, LaneKind::optimizer}), last_report_(seat.runtime.clock.now()) {}

caf::behavior Sharding::make_behavior() {
  return {on(&Sharding::step_begin),     on(&Sharding::gradient_ready), on(&Sharding::micro_batch_done),
          on(&Sharding::snapshot_taken), on(&Sharding::lane_done),      on(&Sharding::slot_home),
          on(&Sharding::inspect),        on(&Sharding::drain),          on(&Sharding::epoch_end)};
}

Sharding::OpenStep& Sharding::open_step(Step step) {
  const auto found = std::find_if(open_.begin(), open_.end(), [&](const OpenStep& open) { return open.step == step; });
  if (found == open_.end()) throw std::logic_error("step " + std::to_string(step.value()) + " has not begun, or was reported");
  return *found;
}

void Sharding::began(const Letter<schema::StepBegin>& letter) {
  const Plan& plan_of_step = parts().plans->of(static_cast<StepKind>(letter.body().getKind()));
  open_.push_back({.step = letter.where().step,
                   .kind = plan_of_step.kind,
                   .learning_rate = letter.body().getLearningRate(),
                   .micro_batches = micro_batches_of(plan_of_step),
                   .micro_batches_open = micro_batches_of(plan_of_step),
                   .last = last_of(plan_of_step),
                   .optimized = last_of(plan_of_step, true),
                   .numbers = std::make_shared<StepNumbers>()});
}

void Sharding::micro_batch_done(const Letter<schema::MicroBatchDone>& letter) {
  OpenStep& step = open_step(letter.where().step);
  if (letter.where().micro.value() >= step.micro_batches) return plan().fact(letter.where().step, letter.operation());  // of the validation set
  const auto body = letter.body();
  --step.micro_batches_open;
  step.tokens += body.getTokens();
  step.digests.push_back(body.getDigest());  // in order: one lane runs the micro-batches
  step.wait_batch_nanos += body.getWaitBatchNanos();
  step.wait_weights_nanos += body.getWaitWeightsNanos();
  step.wait_gradients_nanos += body.getWaitGradientsNanos();
}

void Sharding::completed(Step step, OperationIndex operation) {
  OpenStep& open = open_step(step);
  if (operation == open.optimized) open.optimized_at = runtime().clock.now();
  if (operation == open.last) open.state_stands = true;
}

void Sharding::act() {
  while (auto next = ready()) {
    switch (next->operation->fact.kind) {
      case OperationKind::scales: post(*next, scales(*next)); break;
      case OperationKind::gather: post(*next, gather(*next)); break;
      case OperationKind::accumulate: post(*next, accumulate(*next)); break;
      case OperationKind::reduce: post(*next, reduce(*next)); break;
      case OperationKind::all_reduce: post(*next, all_reduce(*next)); break;
      case OperationKind::verdict: post(*next, verdict(*next)); break;
      case OperationKind::optimize: post(*next, optimize(*next)); break;
      case OperationKind::evaluate: post(*next, evaluate(*next)); break;
      default: throw std::logic_error("the plan gives " + next->operation->name() + " to Sharding");
    }
  }
  note_idle(optimizer_waits_, LaneKind::optimizer);
  report_steps();
}

LanePort::Work Sharding::scales(const PlanCursor::Next& next) const {
  LanePort::Work work;
  work.run = [program = parts().shard, communicator = parts().dp_shard, unit = next.operation->fact.unit](Stream& on) {
    program->scales(on, unit, *communicator);
  };
  return work;
}

LanePort::Work Sharding::gather(const PlanCursor::Next& next) {
  LanePort::Work work;
  const Lease weights = write(work);
  work.run = [program = parts().shard, communicator = parts().dp_shard, unit = next.operation->fact.unit, out = weights.bytes()](Stream& on) {
    program->gather(on, unit, out, *communicator);
  };
  work.letters =
      sends<schema::WeightsGathered>(ActorKind::compute, next, [backward = next.operation->fact.backward](auto body) { body.setBackward(backward); }, weights);
  return work;
}

LanePort::Work Sharding::accumulate(const PlanCursor::Next& next) {
  LanePort::Work work;
  const std::span<std::byte> gradients = read(next, EdgeKind::gradients, work);
  work.run = [program = parts().shard, fact = next.operation->fact, gradients](Stream& on) { program->accumulate(on, fact.micro, fact.unit, gradients); };
  return work;
}

LanePort::Work Sharding::reduce(const PlanCursor::Next& next) {
  LanePort::Work work;
  const std::span<std::byte> gradients = read(next, EdgeKind::gradients, work);
  work.run = [program = parts().shard, communicator = parts().dp_shard, fact = next.operation->fact, gradients](Stream& on) {
    program->reduce(on, fact.micro, fact.unit, gradients, *communicator);
  };
  return work;
}

LanePort::Work Sharding::all_reduce(const PlanCursor::Next& next) const {
  LanePort::Work work;
  work.run = [program = parts().shard, communicator = parts().dp_replicate, unit = next.operation->fact.unit](Stream& on) {
    program->all_reduce(on, unit, *communicator);
  };
  return work;
}

LanePort::Work Sharding::verdict(const PlanCursor::Next& next) const {
  LanePort::Work work;
  work.run = [program = parts().shard, communicator = parts().world, epoch = epoch(), step = next.step, unit = next.operation->fact.unit](Stream& on) {
    if (unit == Unit{0}) return program->verdict(on, epoch, step, *communicator);
    program->unit_verdict(on, epoch, step, unit, *communicator);
  };
  return work;
}

LanePort::Work Sharding::optimize(const PlanCursor::Next& next) {
  LanePort::Work work;
  const OpenStep& open = open_step(next.step);
  work.run = [program = parts().shard, step = next.step, unit = next.operation->fact.unit, learning_rate = open.learning_rate](Stream& on) {
    program->optimize(on, step, unit, learning_rate);
  };
  read_numbers_with(next, work);
  return work;
}

LanePort::Work Sharding::evaluate(const PlanCursor::Next& next) {
  LanePort::Work work;
  work.run = [program = parts().shard, communicator = parts().world](Stream& on) { program->evaluate(on, *communicator); };
  read_numbers_with(next, work);
  return work;
}

/// On the completion of the step's last operation: no later one changes them before this has returned.
void Sharding::read_numbers_with(const PlanCursor::Next& next, LanePort::Work& work) {
  const OpenStep& open = open_step(next.step);
  if (next.index != open.last) return;
  work.read_by_host = true;
  work.letters = [program = parts().shard, numbers = open.numbers] { *numbers = program->numbers(); };
}

void Sharding::report_steps() {
  while (!open_.empty() && open_.front().state_stands && open_.front().micro_batches_open == 0) {
    report(open_.front());
    open_.pop_front();
  }
}

namespace {

void set_sources(schema::StepReport::Builder body, const std::vector<LossSum>& sources) {
  const auto count = static_cast<std::uint32_t>(sources.size());
  if (count == 0) return;
  auto losses = body.initSourceLosses(count);
  auto tokens = body.initSourceTokens(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    losses.set(i, sources[i].loss);
    tokens.set(i, static_cast<std::uint64_t>(sources[i].tokens));
  }
}

}  // namespace

void Sharding::report(const OpenStep& step) {
  const Nanos now = runtime().clock.now();
  const Nanos evaluation = evaluates(step.kind) ? now - step.optimized_at : Nanos{0};
  const Nanos took = now - std::exchange(last_report_, now) - evaluation;
  const StepNumbers& numbers = *step.numbers;
  const auto waited_for_snapshots = static_cast<std::uint64_t>(optimizer_waits_.take(EdgeKind::snapshots).count());
  const auto fill = [&](schema::StepReport::Builder body) {
    body.setOutcome(to_schema(numbers.verdict.outcome));
    body.setLoss(numbers.verdict.mean_loss);
    body.setGradNorm(numbers.verdict.grad_norm);
    body.setLearningRate(step.learning_rate);
    body.setTokens(static_cast<std::uint64_t>(numbers.verdict.tokens));
    body.setNonFinite(static_cast<std::uint64_t>(numbers.verdict.bad));
    body.setFloat8Saturated(static_cast<std::uint64_t>(numbers.verdict.activations.saturated + numbers.verdict.weights.saturated));
    body.setFloat8NonFinite(static_cast<std::uint64_t>(numbers.verdict.activations.non_finite + numbers.verdict.weights.non_finite));
    body.setLocalTokens(step.tokens);
    body.setDigest(join_digests(step.digests));
    body.setStepNanos(static_cast<std::uint64_t>(took.count()));
    body.setArenaPeakBytes(parts().arena_bytes);
    body.setBytesGathered(numbers.bytes_gathered);
    body.setBytesReduced(numbers.bytes_reduced);
    body.setWaitBatchNanos(step.wait_batch_nanos);
    body.setWaitWeightsNanos(step.wait_weights_nanos);
    body.setWaitGradientsNanos(step.wait_gradients_nanos);
    body.setWaitSnapshotsNanos(waited_for_snapshots);
    body.setOwnLoss(numbers.own_mean_loss);
    body.setKind(static_cast<schema::StepKind>(step.kind));
    set_sources(body, numbers.sources);
    if (!evaluates(step.kind)) return;
    body.setEvaluationLoss(numbers.evaluation_loss);
    body.setEvaluationTokens(static_cast<std::uint64_t>(numbers.evaluation_tokens));
    body.setEvaluationNanos(static_cast<std::uint64_t>(evaluation.count()));
  };
  const Where where{epoch(), step.step, {}, {}};
  for (const ActorKind to : {ActorKind::checkpoint, ActorKind::metrics, ActorKind::supervisor})
    tell<schema::StepReport>(neighbour(to), where, fill, {}, step.optimized);
}

}  // namespace troupe
