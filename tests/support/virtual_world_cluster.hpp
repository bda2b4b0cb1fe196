#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/coordinator.hpp"
#include "actors/supervisor.hpp"
#include "tests/support/virtual_world_job.hpp"

namespace troupe {

/// A whole job in a virtual world: the real Coordinator, a real Supervisor for each rank, and under them what VirtualJob has too.
class VirtualCluster {
 public:
  std::function<void(std::uint32_t rank, LaneKind, LaneModel&)> alter_lane;
  std::function<void(std::uint32_t rank, RankParts&)> alter_parts;
  std::function<void(const StepRecord&)> on_step;  ///< called by the Coordinator's JobEvents
  std::function<void(VirtualCluster&)> before_run;
  std::function<void(VirtualCluster&)>
      at_the_end;  ///< called when the Coordinator has joined the last step, or sealed its checkpoint: what follows is the drain
  Nanos limit{std::chrono::seconds{300}};
  Nanos build_time{std::chrono::milliseconds{50}};
  Nanos train_timeout{std::chrono::seconds{100}};
  std::uint32_t absent = 0;  ///< ranks, counted from the last, that never start

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
  };
  Result run();

  [[nodiscard]] VirtualWorld& world() noexcept { return world_; }
  [[nodiscard]] Runtime& runtime() noexcept { return runtime_; }
  [[nodiscard]] SimulatedGroup& group() noexcept { return mesh_->group(CommunicatorKind::dp_shard, 0); }
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

  void spawn_coordinator();
  void spawn_supervisor(std::uint32_t rank);

  const FlowKnobs knobs_;
  Result result_;
  VirtualWorld world_;
  std::unique_ptr<Log> log_;
  Runtime runtime_;
  std::shared_ptr<const PlanSet> plans_;
  std::unique_ptr<SimulatedMesh> mesh_;
  std::unique_ptr<Events> events_;
  std::vector<std::unique_ptr<Factory>> factories_;
  std::vector<std::unique_ptr<SimulatedLane>> builders_;
  std::unique_ptr<SimulatedLane> storage_;
};

}  // namespace troupe
