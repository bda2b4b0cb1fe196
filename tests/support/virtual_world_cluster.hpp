#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/coordinator.hpp"
#include "actors/supervisor.hpp"
#include "tests/support/virtual_world_job.hpp"

namespace troupe {

/// A whole job in a virtual world: the real Coordinator, a real Supervisor for each rank, and under them what VirtualJob has too. Processes
/// may be killed, and are started again where the policy is to recover.
class VirtualCluster {
 public:
  std::function<void(std::uint32_t rank, LaneKind, LaneModel&)> alter_lane;
  std::function<void(std::uint32_t rank, RankParts&)> alter_parts;
  std::function<void(const StepRecord&)> on_step;  ///< called by the Coordinator's JobEvents
  std::function<void(VirtualCluster&)> before_run;
  std::function<void(VirtualCluster&)>
      at_the_end;  ///< called when the Coordinator has joined the last step, or sealed its checkpoint: what follows is the drain
  std::function<void(VirtualCluster&, EpochId ended)> on_recovering;
  std::function<void(VirtualCluster&, Step)> on_kept;
  Nanos limit{std::chrono::seconds{300}};
  Nanos build_time{std::chrono::milliseconds{50}};
  Nanos train_timeout{std::chrono::seconds{100}};
  std::uint32_t absent = 0;  ///< ranks, counted from the last, that never start
  bool respawn = false, shrink = false;
  std::uint32_t min_ranks = 1;
  /// Each rank is on a host of its own: a state in memory is where it was kept until, so long after it was asked for, all hosts hold it.
  std::optional<Nanos> spread_time;
  /// Changes that are planned: by the first step with them, "replicas=2", "slots.weights=3" or "rows=8".
  std::map<Step, std::vector<std::string>> planned;
  /// An epoch with these changes cannot be built by this rank: the problem, or nothing.
  std::function<std::string(std::uint32_t rank, const std::vector<std::string>& changes)> cannot_build;
  std::function<bool(std::uint32_t rank)> cannot_hand_over;
  std::uint32_t most_members = 1000;                                 ///< no configuration has more
  std::function<void(VirtualCluster&, EpochId ended)> on_epoch_end;  ///< that another one follows by intention
  std::uint32_t attempts = 3;
  GuardOptions guard;                                ///< of every step
  std::uint32_t rollback_steps = 0;                  ///< that snapshots are held for
  Nanos start_time{std::chrono::milliseconds{300}};  ///< from a respawn to its Join

  explicit VirtualCluster(const FlowKnobs& knobs);
  ~VirtualCluster();
  VirtualCluster(const VirtualCluster&) = delete;
  VirtualCluster& operator=(const VirtualCluster&) = delete;

  struct Result {
    FlowResult flow;
    std::optional<JobEnd> end;      ///< by the Coordinator
    std::vector<StepRecord> steps;  ///< as told to the sinks
    std::vector<Step> sealed;
    std::vector<std::pair<Step, EpochId>> given_up;  ///< whose folders the Coordinator had removed
    std::map<Step, std::string> not_sealed;          ///< and why
    std::vector<std::string> stuck;                  ///< ranks that missed the abort's deadline
    std::uint32_t ended = 0;                         ///< ranks that said so
    std::vector<BeginEpoch> epochs;
    std::uint32_t recoveries = 0, respawns = 0;
    std::vector<Step> kept;            ///< snapshots in memory that were sealed
    std::vector<std::string> settled;  ///< changes that took a new epoch: "text", or "text: problem"
    std::vector<Rank> let_go;
    std::uint32_t spreads = 0, forgotten = 0;
    DevicePowers devices;                                 ///< as told to the sinks
    std::vector<std::pair<Step, EpochOrigin>> rollbacks;  ///< after which step, to what
    std::vector<std::pair<Step, Step>> set_aside;         ///< checkpoints after the first, up to the second
  };
  Result run();

  /// kill -9: the rank's process is gone, with its letters, lanes and actors; the host agent tells the Coordinator after `notice`.
  void kill(std::uint32_t rank, Nanos notice = std::chrono::milliseconds{1});
  /// As `troupe set`, `troupe join` and `troupe leave` ask. Answers come into `answers`.
  void ask(ChangeRequest request);
  std::vector<troupe::Result<Agreed>> answers;
  /// The snapshots of one rank in memory are not what was written any more.
  void spoil_memory(std::uint32_t rank);

  [[nodiscard]] VirtualWorld& world() noexcept { return world_; }
  /// Of the newest epoch.
  [[nodiscard]] std::uint32_t members() const { return static_cast<std::uint32_t>(result_.epochs.back().members.size()); }
  [[nodiscard]] Runtime& runtime() noexcept { return runtime_; }
  /// dp_shard of rank 0 in the newest epoch.
  [[nodiscard]] SimulatedGroup& group() noexcept { return shared_.rbegin()->second->mesh->group(CommunicatorKind::dp_shard, 0); }
  [[nodiscard]] std::int64_t open_operations() const { return world_.invariants().open_operations(); }
  /// A letter as somebody outside the simulated actors would write it.
  template <class T, class Fill>
  void tell(const ActorAddress& to, Fill&& fill) {
    send<T>(runtime_, Heading{to, coordinator_address, {}, {}, Nanos{0}, 0}, std::forward<Fill>(fill));
  }

 private:
  class Body;
  class Factory;
  class Events;
  struct Process {
    bool alive = false;
    Incarnation incarnation;
    std::unique_ptr<Factory> factory;
    std::unique_ptr<SimulatedLane> builder;
    Body* body = nullptr;
  };
  struct Kept {
    EpochId epoch;
    Step step;
    bool spoilt = false;
  };

  void spawn_coordinator();
  void spawn_supervisor(std::uint32_t rank);
  void start_again(Rank rank, Incarnation incarnation);
  void report_death(std::uint32_t rank, Incarnation incarnation);
  /// What the ranks of one epoch share.
  struct Shared {
    FlowKnobs knobs;
    std::shared_ptr<const PlanSet> plans;
    std::unique_ptr<SimulatedMesh> mesh;
  };
  Shared& shared_of(const EpochStart& start);
  [[nodiscard]] FlowKnobs knobs_of(std::uint32_t ranks, const std::vector<std::string>& changes) const;
  [[nodiscard]] EpochChanges epoch_changes();
  [[nodiscard]] bool finished() const;

  const FlowKnobs knobs_;
  Result result_;
  VirtualWorld world_;
  std::unique_ptr<Log> log_;
  Runtime runtime_;
  std::map<EpochId, std::unique_ptr<Shared>> shared_;
  std::shared_ptr<ChangeRequests> requests_ = std::make_shared<ChangeRequests>();
  std::map<std::pair<std::uint32_t, std::uint32_t>, Kept> memory_;  ///< by rank and slot: the host agent's
  std::vector<std::pair<EpochOrigin, std::vector<Rank>>> spread_;   ///< states that the hosts of these members hold all of
  std::unique_ptr<Events> events_;
  std::map<std::uint32_t, Process> processes_;
  std::set<std::uint32_t> ended_;
  std::vector<std::unique_ptr<Factory>> old_factories_;  ///< of processes that are gone: their actors may still be ending
  std::vector<std::unique_ptr<SimulatedLane>> old_builders_;
  std::unique_ptr<SimulatedLane> storage_;
};

}  // namespace troupe
