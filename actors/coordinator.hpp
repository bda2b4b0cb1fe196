#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "actors/change_requests.hpp"
#include "actors/epoch_decision.hpp"
#include "actors/horizon.hpp"
#include "actors/job_events.hpp"
#include "actors/job_view.hpp"
#include "actors/loss_window.hpp"
#include "actors/membership.hpp"
#include "actors/restore_book.hpp"
#include "actors/seal_book.hpp"
#include "actors/step_history.hpp"
#include "actors/step_join.hpp"
#include "src/device/lane.hpp"
#include "src/runtime/actor.hpp"

namespace troupe {

/// What becomes of the run when a fault ends an epoch ([elastic]).
struct RecoveryOptions {
  bool respawn = false;          ///< go on with the same world, dead processes started again
  bool shrink = false;           ///< go on with the ranks that are left; neither: the first fault ends the run
  std::uint32_t min_ranks = 1;   ///< shrink: with fewer the run ends
  std::uint32_t attempts = 3;    ///< epochs that may end without a new step before the run does
  std::uint32_t keep_every = 0;  ///< steps between snapshots in the host agents' memory; 0: none
  /// Kills what is left of the rank's process, if there is any, then starts it (again). Must not block.
  std::function<void(Rank, Incarnation)> start_again;
  /// The rank's process belongs to the job no more; `kill`: what is left of it is killed, else it ends by itself. Must not block.
  std::function<void(Rank, bool kill)> let_go = {};
  /// A rank's part of a snapshot stands in its host's memory: has another host take a copy, which a SnapshotKept of ActorKind::none will tell of. False:
  /// of this rank there is none. Must not block. Empty: of no rank.
  std::function<bool(Rank, std::uint32_t slot, EpochId, Step)> copy_kept = {};
  /// Has every host of these members hold all parts of this state, for other ranks than then read it: a SnapshotKept of the launcher's process with `number`
  /// as its micro-batch tells that all is there that can be. Must not block. Empty: there is one host.
  std::function<void(const EpochOrigin&, const std::vector<Rank>& members, std::uint32_t number)> spread = {};
  /// Nothing that was kept in an epoch before this one is gone back to. Must not block. May be empty.
  std::function<void(EpochId)> forget_before = {};
  [[nodiscard]] bool elastic() const noexcept { return respawn || shrink; }
  /// What a step trains on, for the error of a step that always fails: "rows 8 to 11 of the data order". Empty: nothing is said.
  std::function<std::string(Step)> describe_data;
};

/// What is made of steps that go wrong though nothing has failed ([training.guard]).
struct GuardOptions {
  bool stop_at_nonfinite = false, roll_back_at_nonfinite = false;  ///< neither: the step is skipped, as the device has decided
  double spike_factor = 0;                                         ///< a loss above so many medians is a spike; 0: none is
  bool stop_at_spike = false;                                      ///< else roll back
  std::uint32_t steps_back = 10;                                   ///< the state gone back to is at least so old
  std::uint32_t most = 10;                                         ///< rollbacks of a run
};

/// What an epoch's configuration is; pure in the step, but for what was agreed in between. Empty functions: nothing changes.
struct EpochChanges {
  /// The first step after this one whose configuration takes a new epoch.
  std::function<std::optional<Step>(Step after)> next;
  /// What the ranks of an epoch that begins with this step change in the run's configuration; the error says why so many ranks cannot run it.
  std::function<Result<std::vector<std::string>>(Step first, std::uint32_t ranks)> changes;
  /// What was to begin with this step did not: it runs as the one before.
  std::function<void(Step)> withdraw;
  std::uint32_t most_ranks = 0;  ///< of all hosts; 0: none can be added or let go, for nobody holds their states meanwhile
  /// Is somebody there who would start a process of this rank? Empty: always.
  std::function<bool(Rank)> can_start = {};
};

struct CoordinatorOptions {
  EpochOptions epoch;
  StepPolicy steps;
  RecoveryOptions recovery;
  std::function<GuardOptions(Step)> guard;            ///< pure; empty: steps that are not finite are skipped, and that is all
  std::uint32_t rollback_steps = 0;                   ///< how far rollbacks go, for which snapshots are held; 0: there are none
  std::size_t spike_window = 64;                      ///< steps of the median
  bool steps_in_backward = false;                     ///< optimizer.early_step_in_backward: such a step may have written part of the state
  Nanos train_timeout{std::chrono::seconds{100}};     ///< comm.train_timeout_seconds: without a step that all ranks finish
  std::function<Nanos(Step)> train_timeout_at;        ///< the same for this step, where it may change; a silent rank then has as much time too; empty: never
  Nanos heartbeat_timeout{std::chrono::seconds{30}};  ///< a rank silent for longer is taken for dead
  Nanos stop_timeout{std::chrono::seconds{15}};       ///< for ranks to answer Drain or EpochEnd
  Nanos silence{std::chrono::seconds{3}};             ///< without a heartbeat: whoever holds others up then does not answer
  Nanos look_every{std::chrono::milliseconds{250}};
  std::function<std::uint64_t(Step)> tokens_before;  ///< valid tokens up to the step that the run resumes from
  std::function<std::uint64_t(Step)> data_row;       ///< rows of data used when this step is over; empty: 0
  /// Writes and renames the manifest; runs on `storage`, may block; throws with what the storage said.
  std::function<void(const CheckpointParts&)> seal;
  /// Removes what was written of a checkpoint that lacks a part; runs on `storage`, may block. Empty: it stays where it is.
  std::function<void(Step, EpochId)> give_up;
  /// Sets aside the sealed checkpoints after the first step and up to the second, which training was rolled back over; runs on `storage`, may block,
  /// throws. Empty: they stay.
  std::function<void(Step after, Step until)> set_aside;
  /// Changes keys of the live run from a step on that was not granted yet; the error says why not. Empty: nothing can be changed.
  std::function<Result<void>(const std::vector<std::string>&, Step from)> change;
  EpochChanges changes;
  std::shared_ptr<ChangeRequests> requests;  ///< null: nobody asks
  std::shared_ptr<JobBoard> board;           ///< null: nobody looks
  Lane* storage = nullptr;                   ///< outlives the actor
};

/// One per job: owns membership, epochs, the horizon and the seals of checkpoints. Decides nothing about arithmetic and touches no
/// file; what it learns it tells to JobEvents. The first fault of an epoch ends it; then the job ends, or (RecoveryOptions::respawn) all that
/// live come to rest, the dead are started again, and a new epoch begins from the newest restore point.
/// A FaultReport from the launcher's process (the host agent's, or of a control connection's end) means that the rank's process is gone.
/// Letters in: Join, EpochReady, StepReport, ShardSaved, SnapshotKept, CheckpointSealed (its own storage lane), Heartbeat, FaultReport, Stopped, StopRequested,
/// Tick. Letters out: EpochBegin, Horizon, Drain, EpochEnd (Supervisors), CheckpointSealed (Checkpoint actors).
class Coordinator final : public Actor<Coordinator> {
 public:
  /// `events` and what the options point to outlive the actor.
  Coordinator(caf::actor_config& config, const ActorSeat& seat, CoordinatorOptions options, JobEvents& events);
  caf::behavior make_behavior() override;
  /// Acts on what the handlers noted: begins the epoch, grants steps, drains, ends.
  void act();

 private:
  enum class Phase { gathering, preparing, running, changing, recovering, draining, ending, over };
  struct Fault {
    std::string cause;
    std::optional<Rank> rank;
    int signal = 0;
    bool final = false;         ///< running it again would not help
    bool process_gone = false;  ///< the rank's process is dead, or to be killed
    bool restore_lost = false;  ///< the epoch was to begin from a state that cannot be read
    bool last_word = false;     ///< no step after it counts: the run is to end there, or its numbers or books are wrong
  };
  /// What belongs to one epoch.
  struct Epoch {
    Epoch(const BeginEpoch& begin, std::uint64_t tokens_before)
        : begun(begin),
          reports(static_cast<std::uint32_t>(begin.members.size()), begin.before_first(), tokens_before),
          seals(begin.epoch, static_cast<std::uint32_t>(begin.members.size())),
          layout(layout_of(begin)) {}
    /// Of ranks and configuration.
    [[nodiscard]] static std::uint64_t layout_of(const BeginEpoch& begin);
    BeginEpoch begun;
    StepJoin reports;
    SealBook seals;
    std::uint64_t layout;
    std::map<Rank, PlanHashes> plans;
    std::uint64_t arena_bytes = 0;
    std::vector<DevicePowers> devices;
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
  void fault_fired(const Letter<schema::FaultFired>&);
  void change_requested(const Letter<schema::ChangeRequested>&);
  void look(const Letter<schema::Tick>&);

  void decide_membership();
  void begin(BeginEpoch decision);
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
  // coordinator_recovery.cpp
  void snapshot_kept(const Letter<schema::SnapshotKept>&);
  /// The state that the epoch was to begin from cannot be read: passed over, if there is another.
  void restore_point_lost(Fault& fault);
  /// Do the members' hosts hold what they are to begin from? Sees to it; act() asks again.
  [[nodiscard]] bool state_is_everywhere(const BeginEpoch& next);
  [[nodiscard]] bool recovers(const Fault& fault) const;
  /// Ends the epoch, not the run; why not, when this went wrong too often.
  [[nodiscard]] std::optional<std::string> recover();
  /// The rank's process is gone or to be killed: started again, and what it was is forgotten.
  void start_again(Rank rank);
  void process_ended(Rank rank, Fault fault);
  /// Once all that live are at rest and the dead are back.
  void begin_again();
  /// False: nothing more is to be made of it.
  [[nodiscard]] bool note_progress(StepRecord record);
  void snapshot_sealed(Step step);
  /// EpochEnd with the cause, if there is one.
  void tell_end(Rank member);
  void finish();
  /// An exception of a handler or of JobEvents: the job's books may be wrong, so it ends.
  void handler_failed(const std::string& cause) override;
  // coordinator_guard.cpp
  void guard(const StepRecord& record);
  void roll_back(Step step, const std::string& why, const GuardOptions& guard);
  void set_aside_checkpoints(Step after, Step until);
  // coordinator_live.cpp
  [[nodiscard]] Result<Agreed> agree(const ChangeRequest& request);
  void show();
  [[nodiscard]] const char* name_of_phase() const;
  // coordinator_epochs.cpp
  /// Says with which step the epoch ends because another one follows, if any does.
  void plan_next_epoch();
  /// The last step of an epoch that another one follows is told everywhere: all leave their state where the next epoch's ranks find it.
  void change_when_due();
  void begin_changed();
  /// Begins with who belongs to the world now, from the newest restore point.
  void begin_next();
  [[nodiscard]] bool is_member(Rank rank) const;
  /// A process of no member: one that was to join, or was let go. False: it is none of these.
  bool stranger_ended(Rank rank, const std::string& cause);
  /// The rank is no member of epochs to come. Says why the run cannot go on without it.
  [[nodiscard]] std::optional<std::string> let_go(Rank rank, const std::string& cause);
  [[nodiscard]] Result<Agreed> agree_on_ranks(const ChangeRequest& request);
  [[nodiscard]] Result<Agreed> agree_on_return(ChangeRequest request);
  [[nodiscard]] Result<Agreed> agree_on_more(const ChangeRequest& request);
  [[nodiscard]] Result<Agreed> agree_on_epoch(const ChangeRequest& request);
  void joined_late(const JoinedRank& rank);
  /// What was to begin with the epoch that could not.
  void withdraw(const std::string& problem);
  /// The epoch runs: what it brought is in force.
  void settle_changes();
  void refuse_joins(Rank rank, const std::string& cause);
  /// Those that wait for the next epoch cannot have it: their processes are killed.
  void turn_away(const std::string& cause);
  void let_leave();
  // coordinator_deadlines.cpp
  [[nodiscard]] Nanos train_timeout() const;
  void check_deadlines();
  void change_nothing(const std::string& cause);
  void check_rest();
  void check_progress(Nanos now);
  void enter(Phase phase);
  template <class T, class Fill>
  void tell_members(ActorKind actor, Step step, Fill&& fill);

  CoordinatorOptions options_;
  JobEvents& events_;
  Membership members_;
  Phase phase_ = Phase::gathering;
  Nanos phase_since_, progress_at_;
  std::optional<Epoch> epoch_;
  std::optional<HorizonBook> horizon_;  ///< of the run, from its first epoch on
  RestoreBook restore_;
  std::optional<StepHistory> history_;    ///< from the first epoch on
  std::map<Rank, Incarnation> lives_;     ///< of processes that were started again
  std::set<Rank> resting_;                ///< while recovering: stopped, or joined anew
  std::map<Rank, std::uint32_t> deaths_;  ///< since the newest step
  std::uint32_t attempts_ = 0;            ///< epochs that ran and have ended since the newest step
  std::uint32_t failed_starts_ = 0;       ///< epochs that never ran, since then
  std::uint64_t respawns_ = 0;
  LossWindow losses_;
  std::set<Step> rolled_back_;         ///< steps after which training went on from an earlier state
  std::optional<Nanos> disturbed_at_;  ///< until a new step is told
  std::optional<Fault> cause_;
  std::set<Rank> dead_;  ///< their processes are gone: nobody waits for them
  bool stop_asked_ = false;
  std::optional<Step> sealed_;
  std::vector<std::string> fault_rules_;  ///< sent to the live run
  std::vector<ChangeView> changes_;       ///< agreed
  std::set<Rank> world_;                  ///< members of the epochs to come
  std::set<Rank> coming_, ready_;         ///< processes that were started to join, and those that wait for the next epoch
  std::map<Rank, Nanos> coming_since_;    ///< when they were asked for
  std::set<Rank> leaving_, left_;         ///< to be let go with the epoch's end, and who was
  std::set<Rank> sent_away_;              ///< of the latter those that somebody wanted to leave, and nobody to join since
  std::set<Rank> newcomers_;              ///< of the epoch that begins
  /// Who kept what lies in memory, by the epoch.
  struct Layout {
    std::vector<Rank> members;
    std::vector<std::string> mesh;  ///< of the epoch's changes those that say who holds which rows
    [[nodiscard]] static Layout of(const std::vector<Rank>& members, const std::vector<std::string>& changes);
    bool operator==(const Layout&) const = default;
  };
  std::map<EpochId, Layout> layouts_;
  struct Spread {
    std::uint32_t number = 0;
    EpochOrigin point;
    std::vector<Rank> members;
    Nanos since{0};
    bool done = false;
  };
  std::optional<Spread> spread_;  ///< of the epoch that is to begin
  std::uint32_t spreads_ = 0;
  EpochId forgotten_before_;
  std::optional<std::uint32_t> hand_over_slot_;
  std::string not_handed_over_;    ///< the first reason
  std::optional<Step> tentative_;  ///< the epoch that begins is the first with the configuration of this step: it may turn out not to be possible
  std::deque<Nanos> told_;         ///< when the last steps were
};

}  // namespace troupe
