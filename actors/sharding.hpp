#pragma once
#include <deque>
#include <memory>
#include <vector>

#include "actors/step_actor.hpp"

namespace troupe {

/// Owns the slots of `weights`, the comm and the optimizer lane, and with them the shards of weights, gradients and optimizer state:
/// gathers ahead of Compute, reduces behind it, has the step judged on the device, steps the optimizer, reports the step.
class Sharding final : public StepActor<Sharding> {
 public:
  Sharding(caf::actor_config& config, const ActorSeat& seat, std::shared_ptr<const RankGround> ground);
  caf::behavior make_behavior() override;
  void act();

  void began(const Letter<schema::StepBegin>& letter);
  void completed(Step step, OperationIndex operation);

 private:
  /// What a step's report needs, gathered until all of it is here.
  struct OpenStep {
    Step step;
    StepKind kind{};
    double learning_rate = 0;
    std::uint32_t micro_batches = 0, micro_batches_open = 0;
    bool state_stands = false;             ///< the last optimize operation is done
    OperationIndex last;                   ///< that operation
    OperationIndex optimized;              ///< the last that changes state: what a snapshot waits for
    Nanos optimized_at{0};                 ///< when it was done
    std::shared_ptr<StepNumbers> numbers;  ///< written on its completion
    std::uint64_t tokens = 0, wait_batch_nanos = 0, wait_weights_nanos = 0, wait_gradients_nanos = 0;
    std::vector<std::uint64_t> digests = {};  ///< of the micro-batches
  };
  void gradient_ready(const Letter<schema::GradientReady>& letter) { note_fact(letter); }
  void micro_batch_done(const Letter<schema::MicroBatchDone>& letter);
  void snapshot_taken(const Letter<schema::SnapshotTaken>& letter) { note_fact(letter); }

  [[nodiscard]] LanePort::Work scales(const PlanCursor::Next& next) const;
  [[nodiscard]] LanePort::Work gather(const PlanCursor::Next& next);
  [[nodiscard]] LanePort::Work accumulate(const PlanCursor::Next& next);
  [[nodiscard]] LanePort::Work reduce(const PlanCursor::Next& next);
  [[nodiscard]] LanePort::Work all_reduce(const PlanCursor::Next& next) const;
  [[nodiscard]] LanePort::Work verdict(const PlanCursor::Next& next) const;
  [[nodiscard]] LanePort::Work optimize(const PlanCursor::Next& next);
  [[nodiscard]] LanePort::Work evaluate(const PlanCursor::Next& next);
  void read_numbers_with(const PlanCursor::Next& next, LanePort::Work& work);
  [[nodiscard]] OpenStep& open_step(Step step);
  void report_steps();
  void report(const OpenStep& step);

  std::deque<OpenStep> open_;
  Nanos last_report_;
  EdgeWaits optimizer_waits_;
};

}  // namespace troupe
