#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "actors/step_actor.hpp"

namespace troupe {

/// Owns the slots of `snapshots`, the copy and the storage lane: copies the state of a step once it stands, then writes the copy to
/// disk while training goes on; and into the memory that outlives this process, where the step was granted with that. A failed write is no
/// fault of the run: it is told to the Coordinator, who decides.
class Checkpoint final : public StepActor<Checkpoint> {
 public:
  Checkpoint(caf::actor_config& config, const ActorSeat& seat, std::shared_ptr<const RankGround> ground);
  caf::behavior make_behavior() override;
  void act();

  void began(const Letter<schema::StepBegin>& letter);
  bool tolerates(Step step, OperationIndex operation, const std::string& cause);

 private:
  void step_report(const Letter<schema::StepReport>& letter) { note_fact(letter); }  // the state of this step stands
  void checkpoint_sealed(const Letter<schema::CheckpointSealed>& letter);
  void snapshot(const PlanCursor::Next& next);
  void keep(const PlanCursor::Next& next);
  void save(const PlanCursor::Next& next);

  std::map<Step, std::uint8_t> keeps_;  ///< steps that end with a snapshot in memory: which
};

}  // namespace troupe
