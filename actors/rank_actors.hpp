#pragma once
#include <array>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "messages/actor_kind.hpp"
#include "src/device/device.hpp"
#include "src/model/programs.hpp"
#include "src/runtime/edge_memory.hpp"
#include "src/runtime/plan_set.hpp"
#include "src/runtime/runtime.hpp"

namespace caf {
class actor;
class actor_system;
}  // namespace caf

namespace troupe {

class Directory;
class StepObserver;

/// What the five actors of a rank are made of, for one epoch. Everything that is pointed to outlives the RankActors.
///
/// Life of an epoch inside a rank, as the Supervisor (or a test) drives it:
///  1. fill RankParts, call spawn_rank: slots are allocated, lanes opened, actors spawned and entered into the Directory.
///  2. for each granted step, in order: StepBegin{epoch, step} to DataLoader, Compute, Sharding and Checkpoint (several steps may be
///     begun ahead; nothing of a step is posted before its StepBegin). RankActors::begin_step does it.
///  3. Sharding answers each step with one StepReport to the Supervisor (and to Checkpoint, for which it is "the state stands");
///     Checkpoint sends ShardSaved to the Coordinator after a train_and_snapshot step.
///  4a. Drain to the five: each answers Stopped once all it was told to do is done, its lanes are idle and its leases are home.
///  4b. or abort. RankActors::halt(cause) halts all lanes; the Supervisor aborts the communicators (so that running work returns) and
///     sends EpochEnd to the five: each posts nothing more, lets go of its leases and answers Stopped when its lanes are idle and its
///     slots home. An actor that stays silent is named by Inspect and by the lanes' progress (src/runtime/watchdog.hpp).
///     Stopped.step is the last step that the actor finished, Stopped.leasesOut is 0. RankActors::drain_all and end_epoch_all send these letters.
///  5. RankActors::quit(), or the destructor, removes the five from the Directory and ends them. Lanes, programs and memory go with the
///     last of the five, on whatever thread that is: a lane joins its own thread, so end the epoch only when all five are Stopped, or
///     leave a process whose lanes hang by _exit.
/// A failed operation is one FaultReport from its poster to the Supervisor; after that this actor posts nothing more.
struct RankParts {
  Runtime* runtime = nullptr;
  Directory* directory = nullptr;
  caf::actor_system* system = nullptr;
  Rank rank;
  EpochId epoch{1};
  Step first_step{1};  ///< of the epoch
  std::shared_ptr<const PlanSet> plans;
  SlotCounts slots;
  BatchLayout batch;                                    ///< bytes of a slot of `batches`; those of the other edges are the programs'
  std::uint32_t units = 0;                              ///< 0 … units − 1 are asked for their bytes
  Device* device = nullptr;                             ///< null: lanes below, slots in host memory
  std::array<std::shared_ptr<Lane>, lane_count> lanes;  ///< by LaneKind; null ones are opened from `device`
  std::shared_ptr<LoaderProgram> loader;
  std::shared_ptr<ComputeProgram> compute;
  std::shared_ptr<ShardProgram> shard;
  std::shared_ptr<SnapshotProgram> snapshot;                     ///< null: no train_and_snapshot steps
  std::shared_ptr<KeepProgram> keep;                             ///< null: the plans have no such operation
  std::shared_ptr<Communicator> dp_shard, dp_replicate, world;   ///< dp_replicate: null where the plans do not use it
  std::function<std::filesystem::path(Step)> checkpoint_folder;  ///< where the shard of a step's checkpoint is written
  ActorAddress shard_saved_to = coordinator_address;             ///< and SnapshotKept
  std::shared_ptr<StepObserver> observer;                        ///< null: nobody looks on
  std::uint64_t arena_bytes = 0;                                 ///< peak device memory, for the reports; 0: that of the slots alone
  bool poison_freed_slots = false;                               ///< tests only
};

/// The bytes of each edge's slots for these parts; a pure question to the programs. `.describe()` prints them before step one.
[[nodiscard]] EdgeLayout edge_layout_of(const RankParts& parts);

/// The running actors of a rank, with what they stand on. Movable, not copyable. Not thread-safe: one owner.
class RankActors {
 public:
  RankActors(RankActors&&) noexcept;
  RankActors& operator=(RankActors&&) noexcept;
  ~RankActors();

  /// StepBegin to DataLoader, Compute, Sharding and Checkpoint. Steps in order, each once.
  /// `keep`: 1 or 2, the snapshot in memory to copy the state into; 0: none.
  void begin_step(Step step, StepKind kind, double learning_rate, bool last, std::uint8_t keep = 0);
  /// Drain (finish what has begun) or EpochEnd (abort) to the five; each answers Stopped to the Supervisor of this rank.
  void drain_all();
  void end_epoch_all(const std::string& cause);
  /// Inspect to the five; each answers Inspection to the Supervisor.
  void inspect_all();
  /// Halts every lane: what is not finished ends as halted. Abort the communicators too.
  void halt(const std::string& cause);
  /// Out of the Directory, and an exit message to each. Idempotent.
  void quit();
  /// quit(), then blocks until the five are gone: what they stood on is then held by this object alone. Not from an actor's handler,
  /// and not under the test scheduler.
  void quit_and_join();

  /// Another Metrics actor in the place of one that has ended; its counters begin anew. The other four have state that the rank cannot go on without.
  [[nodiscard]] caf::actor restart_metrics();

  /// The five, while they are not told to quit; for whoever watches their lives.
  void for_each_actor(const std::function<void(ActorKind, const caf::actor&)>& visit) const;

  [[nodiscard]] Lane& lane(LaneKind kind) const;
  /// All lanes idle within `limit`? Blocks; not from an actor but at a process's end.
  [[nodiscard]] bool drain_lanes(Nanos limit);
  [[nodiscard]] const EdgeMemory& memory() const;
  static constexpr std::array<ActorKind, 5> kinds{ActorKind::data_loader, ActorKind::compute, ActorKind::sharding, ActorKind::checkpoint, ActorKind::metrics};

 private:
  friend RankActors spawn_rank(RankParts parts);
  struct State;
  explicit RankActors(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Allocates the slots, opens missing lanes, spawns the five actors and enters them into the Directory.
/// Throws std::invalid_argument naming what is missing, std::bad_alloc, and what a device throws.
[[nodiscard]] RankActors spawn_rank(RankParts parts);

}  // namespace troupe
