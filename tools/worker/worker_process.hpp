#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "src/config/job_config.hpp"
#include "tools/launcher/signals.hpp"
#include "tools/worker/environment.hpp"

namespace troupe {

struct WorkerRequest {
  std::filesystem::path config;  ///< empty: the launcher tells it
  std::vector<std::string> overrides;
  std::uint32_t ranks_in_process = 1;
  bool overwrite = false;  ///< rank 0 without a launcher
};

/// Hosts ranks until the job ends: joins the Coordinator, runs a Supervisor for each rank, passes signals on. Returns the exit code:
/// 0 a clean end, 1 the run failed, 2 it could not join or was configured wrongly.
[[nodiscard]] int run_worker(const WorkerRequest& request, const WorkerPlace& place, const SignalQueue& signals);

}  // namespace troupe
