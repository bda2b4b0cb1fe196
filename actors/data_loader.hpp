#pragma once
#include "actors/step_actor.hpp"

namespace troupe {

/// Owns the slots of `batches` and the disk lane: fills a free slot with the next batch that the plan wants, however far ahead of
/// Compute that is. What a batch holds is a pure function of (seed, step, micro), so a restarted loader repeats itself.
class DataLoader final : public StepActor<DataLoader> {
 public:
  DataLoader(caf::actor_config& config, const ActorSeat& seat, std::shared_ptr<const RankGround> ground);
  caf::behavior make_behavior() override;
  void act();
};

}  // namespace troupe
