#pragma once
#include <cstdint>

#include "src/base/log.hpp"
#include "src/base/result.hpp"
#include "src/config/job_config.hpp"
#include "tools/commands/commands.hpp"
#include "tools/launcher/job_setup.hpp"
#include "tools/launcher/signals.hpp"

namespace troupe {

/// Whether checkpoint.create_seed_checkpoint, where it is set, fits the other keys and the number of ranks.
[[nodiscard]] Result<void> check_seed(const JobConfig& config, std::uint32_t world_size);

/// The initial weights as the checkpoint of step 0, written by a worker: this program links no LibTorch. The exit code; an error: no worker could be started.
[[nodiscard]] Result<int> write_seed(const TrainRequest& request, const JobConfig& config, const PreparedRun& run, Log& log, const SignalQueue& signals);

}  // namespace troupe
