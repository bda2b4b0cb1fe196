#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "actors/epoch_decision.hpp"
#include "actors/rank_actors.hpp"
#include "src/base/ids.hpp"
#include "src/device/device.hpp"

namespace troupe {

/// What the Coordinator said of the epoch that begins.
struct EpochStart {
  EpochId epoch;
  Rank rank;                      ///< that the body is for
  std::vector<Rank> members;      ///< in rank order
  Step first_step, restore_step;  ///< restore_step 0: initialise from the seed
  std::string communicator_tag;
  EpochOrigin restore = {};               ///< where the state after restore_step lies
  std::uint64_t data_row = 0;             ///< rows of data used before first_step
  std::uint64_t respawns = 0;             ///< incarnations of the members' processes, summed
  std::vector<std::string> changes = {};  ///< of the run's configuration, "key=value", in order
  /// Position of the rank among the members, which is its rank in the mesh.
  [[nodiscard]] std::uint32_t place() const noexcept { return static_cast<std::uint32_t>(std::ranges::find(members, rank) - members.begin()); }
  [[nodiscard]] std::uint32_t world() const noexcept { return static_cast<std::uint32_t>(members.size()); }
};

/// What one rank stands on during one epoch: device memory, programs, plans, communicators, restored state.
/// Destroyed after the rank's actors are gone and its lanes are idle.
class RankBody {
 public:
  virtual ~RankBody() = default;
  /// For spawn_rank; valid as long as the body is.
  [[nodiscard]] virtual RankParts parts() = 0;
  [[nodiscard]] virtual PlanHashes plan_hashes() const = 0;
  [[nodiscard]] virtual std::uint64_t arena_bytes() const = 0;  ///< device memory planned, slots included
  /// Of the device that it stands on; memory_bytes 0 where that is the host's.
  [[nodiscard]] virtual DeviceInfo device() const { return {}; }
  /// Sets the halt word, so that no kernel writes state any more, and aborts all communicators, so that running work returns.
  /// Any thread, repeatedly, never blocks.
  virtual void abort(const std::string& cause) noexcept = 0;
  /// Leaves the state, which stands after `step`, in a slot of the host agent's memory, for the ranks of the next epoch. The rank's actors have
  /// stopped and its lanes are idle. Blocks; on the Supervisor's own lane. Throws with what is wrong.
  virtual void hand_over(EpochId /*epoch*/, Step /*step*/, std::uint32_t /*slot*/) { throw std::runtime_error("this rank cannot hand its state over"); }
};

/// The state that an epoch was to begin from cannot be read; another may be.
struct RestorePointLost : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Makes bodies. The real one is in tools/worker; tests put their own in its place.
class RankFactory {
 public:
  virtual ~RankFactory() = default;
  /// Blocks: waits for peers' communicators, reads checkpoints. Called on the Supervisor's own lane. Throws with what failed and why;
  /// RestorePointLost when it is the state to begin from that cannot be read.
  [[nodiscard]] virtual std::unique_ptr<RankBody> build(const EpochStart& start) = 0;
  /// All fault rules that were sent to the live run so far, in order. On the Supervisor's thread; never blocks.
  virtual void fault_rules(const std::vector<std::string>& /*rules*/) {}
  /// Ends a build() of this epoch that waits for peers, also one that has yet to begin. Any thread; never blocks.
  virtual void cancel(EpochId epoch, const std::string& cause) noexcept = 0;
};

}  // namespace troupe
