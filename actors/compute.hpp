#pragma once
#include <vector>

#include "actors/step_actor.hpp"

namespace troupe {

/// Owns the slots of `gradients` and the compute lane: forward and backward of each unit, as weights and batches arrive.
class Compute final : public StepActor<Compute> {
 public:
  Compute(caf::actor_config& config, const ActorSeat& seat, std::shared_ptr<const RankGround> ground);
  caf::behavior make_behavior() override;
  void act();

 private:
  /// What a batch's letter said, until its micro-batch is over.
  struct Batch {
    Step step;
    Micro micro;
    BatchFacts facts;
  };
  void batch_ready(const Letter<schema::BatchReady>& letter);
  void weights_gathered(const Letter<schema::WeightsGathered>& letter) { note_fact(letter); }

  void forward(const PlanCursor::Next& next);
  void backward(const PlanCursor::Next& next);
  [[nodiscard]] static bool ends_batch(const PlanCursor::Next& next);  ///< it is the last to read its batch
  [[nodiscard]] std::function<void()> sends_micro_batch_done(const PlanCursor::Next& next);

  std::vector<Batch> batches_;
  EdgeWaits waits_;  ///< since the last MicroBatchDone
};

}  // namespace troupe
