#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/rank_actors.hpp"
#include "src/base/log.hpp"
#include "src/plan/compiler.hpp"
#include "src/simulation/device_order.hpp"
#include "src/simulation/simulated_communicator.hpp"
#include "src/simulation/simulated_lane.hpp"
#include "src/simulation/simulated_mesh.hpp"
#include "src/simulation/stamped_programs.hpp"
#include "src/simulation/virtual_world.hpp"

namespace caf {
class actor;
class actor_system;
}  // namespace caf

namespace troupe {

/// Everything that a flow test may turn, drawn from a seed or set by hand.
struct FlowKnobs {
  std::uint64_t seed = 0;
  std::uint32_t ranks = 1, layers = 4, micro_batches = 1;
  std::uint32_t replicas = 1;                   ///< divides ranks; as many as ranks: nothing is sharded
  std::uint64_t steps = 2, snapshot_every = 0;  ///< snapshot_every 0: never
  std::uint64_t evaluate_every = 0;             ///< 0: never
  std::uint32_t evaluation_batches = 0;         ///< of a validation
  std::uint32_t begun_ahead = 1;                ///< steps begun before the first of them is reported
  SlotCounts slots;
  Nanos forward{0}, backward{0}, gather{0}, reduce{0}, load{0}, verdict{0}, optimize{0}, snapshot{0}, save{0};
  double jitter = 0;
  bool fp8_scales = false, prefetch_before_reduce = true, work_at_start = false, device_order = false;
  bool weights_resident = false, reduce_last = false;
  bool step_in_backward = false;  ///< one reduce a step: one micro-batch, or reduce_last
  bool plain_layers = false;      ///< every unit alike, as probe p13: re-gathered for its backward; else the first and last are special
  Nanos letter_delay{0}, handler_delay{0};
  std::uint64_t overflow_step = 0;  ///< this step's loss is not finite; 0: none
  std::uint64_t rows = 0;           ///< of a step; 0: what the micro-batches of all ranks hold
  std::uint32_t keep_every = 0;     ///< steps between snapshots in memory; 0: none
  Nanos keep{0};
};
/// Knobs of a seed: slots 1-4, micro-batches 1-3, layers 2-8, 2-3 steps, durations, jitter, snapshots, the ways of data parallelism.
[[nodiscard]] FlowKnobs draw_knobs(std::uint64_t seed, std::uint32_t ranks);
[[nodiscard]] std::string describe(const FlowKnobs& knobs);

/// What a run left behind.
struct FlowResult {
  RunEnd end;
  std::string findings;  ///< empty: every invariant held
  std::vector<Finding> found;
  std::string fault;  ///< the first FaultReport's cause
  Step reported;      ///< by rank 0
  std::uint64_t order_hash = 0, timed_hash = 0, letters = 0, lane_operations = 0, accesses = 0;
  Nanos elapsed{0}, compute_busy{0};  ///< of rank 0
  [[nodiscard]] bool has(Invariant invariant) const;
};

/// One finished operation, in the order of finishing.
struct FlowSpan {
  Rank rank;
  LaneKind lane;
  std::string name;
  Where where;
  Nanos started, ended;
};

/// One rank's lanes, programs and parts on a virtual world.
struct SimulatedRank {
  std::unique_ptr<StampedRank> programs;
  std::unique_ptr<DeviceOrder> order;
  std::vector<std::shared_ptr<SimulatedLane>> lanes;
  RankParts parts;
};
/// What a SimulatedRank stands on; all of it outlives the rank.
struct SimulatedGround {
  VirtualWorld& world;
  Runtime& runtime;
  const FlowKnobs& knobs;
  std::shared_ptr<const PlanSet> plans;
  SimulatedMesh& mesh;
  LaneObserver* observer = nullptr;
  std::function<void(LaneKind, LaneModel&)> alter_lane;
  Step first = Step{1};  ///< of the epoch
  StampedRank::Memory memory = {};
  std::optional<Rank> process = {};  ///< whose letters and lanes these are; nothing: the rank's own number
};
/// `rank`: in the mesh.
[[nodiscard]] SimulatedRank simulate_rank(const SimulatedGround& ground, std::uint32_t rank);
[[nodiscard]] std::shared_ptr<const PlanSet> compile(const FlowKnobs& knobs);  ///< throws what the compiler says
[[nodiscard]] StepKind kind_of(const FlowKnobs& knobs, Step step);
/// A mesh of these ranks whose waiting the world reports.
[[nodiscard]] std::unique_ptr<SimulatedMesh> mesh_of(VirtualWorld& world, const FlowKnobs& knobs);

/// Ranks, wired up in a virtual world and driven by small supervisors: begin steps, drain, or abort on the first fault.
class VirtualJob {
 public:
  /// Called with the parts of each rank before it is spawned: the place to put in something broken or faulty.
  std::function<void(VirtualJob&, std::uint32_t rank, RankParts&)> alter_parts;
  std::function<void(VirtualJob&, std::uint32_t rank, LaneKind, LaneModel&)> alter_lane;
  std::function<void(VirtualJob&)> before_run;
  Nanos limit{std::chrono::seconds{100}};

  explicit VirtualJob(const FlowKnobs& knobs);
  ~VirtualJob();
  VirtualJob(const VirtualJob&) = delete;
  VirtualJob& operator=(const VirtualJob&) = delete;

  /// Once.
  FlowResult run();
  /// From alter_parts: spawns an actor that takes over this address once the real one stands there; the job ends it.
  void replace(const ActorAddress& address, std::function<caf::actor(caf::actor_system&, const ActorAddress&)> spawn);

  [[nodiscard]] VirtualWorld& world() noexcept { return world_; }
  [[nodiscard]] Runtime& runtime() noexcept { return runtime_; }
  [[nodiscard]] const FlowKnobs& knobs() const noexcept { return knobs_; }
  [[nodiscard]] const PlanSet& plans() const noexcept { return *plans_; }
  [[nodiscard]] StampedRank& programs(std::uint32_t rank) { return *ranks_[rank].simulated.programs; }
  /// dp_shard of rank 0.
  [[nodiscard]] SimulatedGroup& group() noexcept { return mesh_->group(CommunicatorKind::dp_shard, 0); }
  /// As the Coordinator: the first fault ends the epoch for all ranks, told by letters that take time.
  void fault(std::uint32_t rank, const std::string& cause);
  [[nodiscard]] std::int64_t open_operations() const { return world_.invariants().open_operations(); }
  [[nodiscard]] const std::vector<FlowSpan>& spans() const noexcept { return spans_; }

 private:
  friend class TestSupervisor;
  struct RankState {
    SimulatedRank simulated;
    std::unique_ptr<RankActors> actors;
    Step begun;
    std::set<ActorKind> stopped;
    std::uint32_t leases_out = 0;
    bool ending = false;
  };
  class SpanRecorder;
  struct Replacement {
    ActorAddress address;
    std::function<caf::actor(caf::actor_system&, const ActorAddress&)> spawn;
  };

  void wire(std::uint32_t rank);
  void end_actor(const ActorAddress& address);
  void check(FlowResult& result);
  [[nodiscard]] bool finished() const;
  // The supervisors' part, in the context of their rank's handler.
  void begin_steps(std::uint32_t rank, Step reported);
  void end_epoch(std::uint32_t rank, const std::string& cause);

  const FlowKnobs knobs_;
  VirtualWorld world_;
  std::unique_ptr<Log> log_;
  Runtime runtime_;
  std::shared_ptr<const PlanSet> plans_;
  std::unique_ptr<SimulatedMesh> mesh_;
  std::vector<RankState> ranks_;
  std::vector<std::unique_ptr<LaneObserver>> observers_;
  std::vector<FlowSpan> spans_;
  std::vector<Replacement> replacements_;
  std::string fault_;
};

/// Runs the knobs twice: the second run's hash must be the first's, or the result has a finding of `repeatable_trace`.
/// `prepare` is called for each job before it runs.
[[nodiscard]] FlowResult run_twice(const FlowKnobs& knobs, const std::function<void(VirtualJob&)>& prepare = {});

}  // namespace troupe
