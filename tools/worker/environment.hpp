#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "src/base/ids.hpp"
#include "src/base/result.hpp"

namespace troupe {

/// Reads a variable of the environment; nullopt if unset. A function, so that tests need no process environment.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
[[nodiscard]] Environment process_environment();

/// Where a worker stands, and who started it.
struct WorkerPlace {
  enum class Starter { troupe, torchrun, slurm };
  Starter starter = Starter::troupe;
  Rank rank;
  std::uint32_t world_size = 1;
  std::uint32_t local_rank = 0;
  std::string coordinator_host;
  std::uint16_t coordinator_port = 0;
  Incarnation incarnation;                 ///< of the process: TROUPE_INCARNATION
  std::optional<int> snapshot_descriptor;  ///< of the host agent's memory: TROUPE_SNAPSHOTS
  bool hosts_coordinator = false;          ///< rank 0 without a launcher: it hosts the Coordinator at that port
};

/// TROUPE_COORDINATOR (with TROUPE_RANK, TROUPE_WORLD_SIZE; else the starter's) wins; then torchrun's RANK, WORLD_SIZE, LOCAL_RANK,
/// MASTER_ADDR, MASTER_PORT; then Slurm's SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID, SLURM_NODELIST, where an explicit MASTER_ADDR or
/// MASTER_PORT wins over the first node and over 29500. Without a launcher the Coordinator listens at MASTER_PORT + 1. Pure.
/// An error names the variable that is missing or wrong.
[[nodiscard]] Result<WorkerPlace> place_worker(const Environment& environment);

/// UCX_NET_DEVICES of a process: TROUPE_NET_DEVICES where it is set, else `interface` (comm.interface), else loopback. Pure.
[[nodiscard]] std::string network_devices(const Environment& environment, const std::string& interface);

}  // namespace troupe
