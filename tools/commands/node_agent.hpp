#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "src/base/result.hpp"
#include "src/config/job_config.hpp"
#include "tools/commands/commands.hpp"
#include "tools/launcher/secret.hpp"
#include "tools/launcher/signals.hpp"

namespace troupe {

/// Can this configuration run on so many hosts, each with an agent? The error names the key.
[[nodiscard]] Result<void> check_hosts(const JobConfig& config, std::uint32_t nodes);

/// What every worker of this host is told, beside its rank. `coordinator`: host:port.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> worker_environment(const std::string& coordinator, const Secret& secret,
                                                                                  std::uint32_t world_size, const std::string& network_devices,
                                                                                  const JobConfig& config);

/// `troupe train` on a host that is not the job's first: joins the launcher there, starts the workers that it asks for, tells how they end, and keeps their
/// snapshots. Finds the launcher by RUN/control.json, which it waits for. Ends with the job, or when the launcher is gone. Returns the exit code.
[[nodiscard]] int run_node_agent(const TrainRequest& request, const JobConfig& config, const SignalQueue& signals);

}  // namespace troupe
