#pragma once
#include <filesystem>

#include "src/trace/report.hpp"
#include "tools/foresight/profile.hpp"

namespace troupe {

/// The configuration that a run had at this step, with `ranks` ranks: config.toml, what it plans, and what its journal says was changed live.
[[nodiscard]] Result<JobConfig> config_of_run(const std::filesystem::path& run, Step at, std::uint32_t ranks);

/// Plays a run's operations again in the simulator: real actors, plans and slots, each operation as long as the run's took (calibrate), once with the slots
/// that there are and once for each edge of a step with one more. `cluster`: of the run's devices. The error says why it cannot be played.
[[nodiscard]] Result<SlotReplay> replay_slots(const RunProfile& run, const ClusterModel& cluster);

/// What a run's ranks compute on, as far as the machine that looks at it can tell: a GPU, or this machine's cores.
[[nodiscard]] ClusterModel cluster_of_run(const JobConfig& config);

}  // namespace troupe
