#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/coordinator.hpp"
#include "actors/supervisor.hpp"
#include "src/simulation/core_pool.hpp"
#include "src/simulation/device_order.hpp"
#include "src/simulation/simulated_communicator.hpp"
#include "src/simulation/simulated_lane.hpp"
#include "src/simulation/stamped_programs.hpp"
#include "src/simulation/virtual_world.hpp"
#include "src/trace/overlap.hpp"

namespace troupe {

class RingTracer;

/// What the ranks of an epoch are built from.
struct SimulatedLayout {
  std::shared_ptr<const PlanSet> plans;
  SlotCounts slots;
  std::uint32_t units = 1, micro_batches = 1;
  bool reduce_last = false;                ///< what is reduced is the sum of all micro-batches
  bool step_in_backward = false;           ///< each unit is judged and updated by itself
  std::uint32_t shards = 1, replicas = 1;  ///< that are simulated; their product are the ranks
  std::function<Nanos(const PlannedOperation&)> cost;
};

/// What a simulated job is made of. Ranks that are not simulated are taken to do what the simulated ones do, at the same time: a collective's
/// time is `cost`'s, whatever the number of members that are there.
struct SimulatedJobOptions : SimulatedLayout {
  std::map<Step, SimulatedLayout> changes;  ///< a new epoch begins with each of these steps, of as many ranks that are built so
  double contention = 0;                    ///< NetworkModel::contention
  Nanos letter{0};                          ///< DeviceModel::letter_us
  bool one_order = false;                   ///< DeviceModel::one_order
  double cores = 0;                         ///< of a host, which its ranks' lanes share; 0: each rank has a device, which compute and optimizer share
  std::uint32_t ranks_per_host = 1;
  Step last{4};
  std::uint32_t run_ahead = 2;             ///< steps granted past the slowest report
  std::function<bool(Step)> snapshot_due;  ///< a checkpoint is written after this step; empty: never
  bool wait_for_saves = false;
  std::uint32_t keep_every = 0;                       ///< steps between snapshots in memory; 0: none
  bool respawn = false;                               ///< go on after a death; else it ends the run
  Nanos start_time{0};                                ///< from a respawn to its Join
  Nanos notice{0};                                    ///< from a death to the launcher's knowing
  std::function<Nanos(EpochOrigin::Place)> build;     ///< of a rank that begins an epoch; empty: none
  Nanos hand_over{0};                                 ///< of a rank that leaves its state for the epoch after a change
  std::map<Nanos, Rank> deaths;                       ///< when whose process dies
  RingTracer* tracer = nullptr;                       ///< of letters and lanes; null: none
  std::uint32_t traced_ranks = 0;                     ///< the first, which the tracer has rings for
  bool keep_all_spans = false;                        ///< of all ranks in SimulatedOutcome::spans
  std::function<void(Rank, RankParts&)> alter_parts;  ///< tests: before a rank is raised
  Nanos limit{std::chrono::hours{24 * 365}};
};

/// When a step was over, as the Coordinator joined its reports.
struct SimulatedStep {
  Step step;
  EpochId epoch;
  Nanos at{0};
};

struct SimulatedOutcome {
  RunEnd end;                        ///< how the world came to rest
  std::string findings;              ///< of the invariants that watch it; empty: all held
  std::optional<JobEnd> job;         ///< what the Coordinator said last
  std::vector<SimulatedStep> steps;  ///< told once each
  std::vector<TracedSpan> spans;     ///< of rank 0's lanes, or of all
  std::vector<Step> kept;            ///< snapshots in memory that were sealed
  struct Recovery {
    Nanos died{0}, first_step{0};  ///< the first step that had not been told before
    Step lost_from, lost_to;       ///< run again
  };
  std::vector<Recovery> recoveries;
  std::uint64_t letters = 0;
};

/// A whole job in virtual time: the real Coordinator, the real Supervisor and five actors of every rank, the real plans and slots, on lanes
/// that only take time. What a rank computes are stamps, so that every slot's content is still checked. Blocks; one thread.
[[nodiscard]] SimulatedOutcome simulate_job(const SimulatedJobOptions& options);

}  // namespace troupe
