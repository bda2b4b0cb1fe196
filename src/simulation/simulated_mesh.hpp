#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/runtime/plan.hpp"
#include "src/simulation/simulated_communicator.hpp"

namespace troupe {

/// The groups that simulated ranks meet in: those of one replica, those that hold the same shard, all. One thread; the world outlives it.
class SimulatedMesh {
 public:
  /// `shards` ranks make a replica.
  SimulatedMesh(VirtualWorld& world, std::uint32_t shards, std::uint32_t replicas);
  [[nodiscard]] std::unique_ptr<Communicator> member(CommunicatorKind kind, std::uint32_t rank);
  void abort(const std::string& cause) noexcept;
  /// The rank's process is gone: SimulatedGroup::lose in each of its groups.
  void lose(std::uint32_t rank);
  /// One line for each group in which somebody waits for somebody.
  [[nodiscard]] std::string waiting() const;

  /// That this rank is in.
  [[nodiscard]] SimulatedGroup& group(CommunicatorKind kind, std::uint32_t rank);

 private:
  const std::uint32_t shards_;  ///< ranks of a replica
  std::vector<std::unique_ptr<SimulatedGroup>> dp_shard_, dp_replicate_;
  std::unique_ptr<SimulatedGroup> whole_;
};

}  // namespace troupe
