#pragma once
#include <cstdint>

#include "src/base/result.hpp"
#include "src/config/job_config.hpp"

namespace troupe {

/// Whether this host can start workers of runtime.device, before any is started: the plug-in, the driver, a GPU for each rank. What only CUDA itself can
/// tell (compute capability, free memory, another torch) the workers say. `processes`: of this host; `ranks_in_process`: in each.
[[nodiscard]] Result<void> check_device(const JobConfig& config, std::uint32_t processes, std::uint32_t ranks_in_process);

}  // namespace troupe
