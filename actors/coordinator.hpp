#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "actors/epoch_decision.hpp"
#include "actors/horizon.hpp"
#include "actors/job_events.hpp"
#include "actors/membership.hpp"
#include "actors/seal_book.hpp"
#include "actors/step_join.hpp"
#include "src/device/lane.hpp"
#include "src/runtime/actor.hpp"

namespace troupe {

struct CoordinatorOptions {
  EpochOptions epoch;
  StepPolicy steps;
  Nanos train_timeout{std::chrono::seconds{100}};     ///< comm.train_timeout_seconds: without a step that all ranks finish
  Nanos heartbeat_timeout{std::chrono::seconds{30}};  ///< a rank silent for longer is taken for dead
  Nanos stop_timeout{std::chrono::seconds{15}};       ///< for ranks to answer Drain or EpochEnd
  Nanos look_every{std::chrono::milliseconds{250}};
  std::function<std::uint64_t(Step)> tokens_before;  ///< valid tokens up to a restored step; called once for each epoch
  /// Writes and renames the manifest; runs on `storage`, may block; throws with what the storage said.
  std::function<void(const CheckpointParts&)> seal;
  /// Removes what was written of a checkpoint that lacks a part; runs on `storage`, may block. Empty: it stays where it is.
  std::function<void(Step, EpochId)> give_up;
  Lane* storage = nullptr;  ///< outlives the actor
};

/// One per job: owns membership, epochs, the horizon and the seals of checkpoints. Decides nothing about arithmetic and touches no
/// file; what it learns it tells to JobEvents. Policy `stop`: the first fault of an epoch ends the job.
/// A FaultReport from the launcher's process (the host agent's, or of a control connection's end) means that the rank's process is gone.
/// Letters in: Join, EpochReady, StepReport, ShardSaved, CheckpointSealed (its own storage lane), Heartbeat, FaultReport, Stopped, StopRequested, Tick.
/// Letters out: EpochBegin, Horizon, Drain, EpochEnd (Supervisors), CheckpointSealed (Checkpoint actors).
class Coordinator final : public Actor<Coordinator> {
 public:
  /// `events` and what the options point to outlive the actor.
  Coordinator(caf::actor_config& config, const ActorSeat& seat, CoordinatorOptions options, JobEvents& events);
  caf::behavior make_behavior() override;
  /// Acts on what the handlers noted: begins the epoch, grants steps, drains, ends.
  void act();

 private:
  enum class Phase { gathering, preparing, running, draining, ending, over };
  struct Fault {
    std::string cause;
    std::optional<Rank> rank;
    int signal = 0;
  };
  /// What belongs to one epoch.
  struct Epoch {
    Epoch(const BeginEpoch& begin, const StepPolicy& policy, std::uint64_t tokens_before)
        : begun(begin),
          horizon(policy, begin.restore_step),
          reports(static_cast<std::uint32_t>(begin.members.size()), begin.restore_step, tokens_before),
          seals(begin.epoch, static_cast<std::uint32_t>(begin.members.size())) {}
    BeginEpoch begun;
    HorizonBook horizon;
    StepJoin reports;
    SealBook seals;
    std::map<Rank, PlanHashes> plans;
    std::uint64_t arena_bytes = 0;
    std::set<Rank> stopped;
    std::set<Step> unsealed;  ///< granted with a snapshot, not yet sealed or given up
  };

  void join(const Letter<schema::Join>&);
  void ready(const Letter<schema::EpochReady>&);
  void report(const Letter<schema::StepReport>&);
  void shard_saved(const Letter<schema::ShardSaved>&);
  void sealed(const Letter<schema::CheckpointSealed>&);
  void heartbeat(const Letter<schema::Heartbeat>&);
  void fault(const Letter<schema::FaultReport>&);
  void stopped(const Letter<schema::Stopped>&);
  void stop_requested(const Letter<schema::StopRequested>&);
  void look(const Letter<schema::Tick>&);

  void decide_membership();
  void begin(const BeginEpoch& decision);
  void start_steps();
  void grant();
  void drain_when_finished();
  void finish_when_stopped();
  void seal(CheckpointParts parts);
  /// Posts `work` to the storage lane; what became of the checkpoint comes back as CheckpointSealed. `problem`: known before the work.
  void post_to_storage(std::string name, Step step, std::string problem, std::function<void()> work);
  /// The first is the cause of the epoch's end; later ones are told to JobEvents and change nothing.
  void raise(Fault fault);
  void end_epoch();
  /// EpochEnd with the cause, if there is one.
  void tell_end(Rank member);
  void finish();
  /// An exception of a handler or of JobEvents: the job's books may be wrong, so it ends.
  void handler_failed(const std::string& cause) override;
  void check_deadlines();
  void enter(Phase phase);
  template <class T, class Fill>
  void tell_members(ActorKind actor, Step step, Fill&& fill);

  CoordinatorOptions options_;
  JobEvents& events_;
  Membership members_;
  Phase phase_ = Phase::gathering;
  Nanos phase_since_, progress_at_;
  std::optional<Epoch> epoch_;
  std::optional<Fault> cause_;
  std::set<Rank> dead_;  ///< their processes are gone: nobody waits for them
  bool stop_asked_ = false;
  std::optional<Step> sealed_;
};

}  // namespace troupe
