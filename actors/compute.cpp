#include "actors/compute.hpp"

#include <algorithm>

namespace troupe {

Compute::Compute(caf::actor_config& config, const ActorSeat& seat, std::shared_ptr<const RankGround> ground)
    : StepActor(config, seat, std::move(ground), EdgeKind::gradients, {LaneKind::compute}) {}

caf::behavior Compute::make_behavior() {
  return {on(&Compute::step_begin), on(&Compute::batch_ready), on(&Compute::weights_gathered), on(&Compute::lane_done), on(&Compute::slot_home),
          on(&Compute::inspect),    on(&Compute::drain),       on(&Compute::epoch_end)};
}

void Compute::batch_ready(const Letter<schema::BatchReady>& letter) {
  const Where where = letter.where();
  batches_.push_back({where.step, where.micro, {letter.body().getTokens(), letter.body().getDigest()}});
  note_fact(letter);
}

void Compute::act() {
  while (auto next = ready()) {
    if (next->operation->fact.kind == OperationKind::forward) {
      forward(*next);
    } else {
      backward(*next);
    }
  }
  note_idle(waits_, LaneKind::compute);
}

void Compute::forward(const PlanCursor::Next& next) {
  LanePort::Work work;
  const std::span<const std::byte> batch = read(next, EdgeKind::batches, work);
  const std::span<const std::byte> weights = read(next, EdgeKind::weights, work);
  work.run = [program = parts().compute, step = next.step, fact = next.operation->fact, batch, weights](Stream& on) {
    program->forward(on, step, fact.micro, fact.unit, batch, weights);
  };
  work.letters = sends_micro_batch_done(next);  // of the validation set: nothing follows
  post(next, std::move(work));
}

void Compute::backward(const PlanCursor::Next& next) {
  LanePort::Work work;
  const std::span<const std::byte> batch = read(next, EdgeKind::batches, work);
  const std::span<const std::byte> weights = read(next, EdgeKind::weights, work);
  const Lease gradients = write(work);
  work.run = [program = parts().compute, step = next.step, fact = next.operation->fact, batch, weights, out = gradients.bytes()](Stream& on) {
    program->backward(on, step, fact.micro, fact.unit, batch, weights, out);
  };
  work.letters = [micro_batch_done = sends_micro_batch_done(next), gradient_ready = sends<schema::GradientReady>(
                                                                       ActorKind::sharding, next, [](auto) {}, gradients)] {
    if (micro_batch_done) micro_batch_done();  // first: who has all gradients has the counts too
    gradient_ready();
  };
  post(next, std::move(work));
}

bool Compute::ends_batch(const PlanCursor::Next& next) {
  return std::ranges::any_of(next.operation->last_reads, [&](OperationIndex producer) { return (*next.plan)[producer].takes == EdgeKind::batches; });
}

std::function<void()> Compute::sends_micro_batch_done(const PlanCursor::Next& next) {
  if (!ends_batch(next)) return {};
  const auto found =
      std::find_if(batches_.begin(), batches_.end(), [&](const Batch& b) { return b.step == next.step && b.micro == next.operation->fact.micro; });
  if (found == batches_.end()) throw std::logic_error("a micro-batch ends whose BatchReady never came");
  const BatchFacts facts = found->facts;
  batches_.erase(found);
  const auto waited = [this](EdgeKind edge) { return static_cast<std::uint64_t>(waits_.take(edge).count()); };
  return sends<schema::MicroBatchDone>(
      ActorKind::sharding, next,
      [facts, batches = waited(EdgeKind::batches), weights = waited(EdgeKind::weights), gradients = waited(EdgeKind::gradients)](auto body) {
        body.setTokens(facts.valid_tokens);
        body.setDigest(facts.digest);
        body.setWaitBatchNanos(batches);
        body.setWaitWeightsNanos(weights);
        body.setWaitGradientsNanos(gradients);
      });
}

}  // namespace troupe
