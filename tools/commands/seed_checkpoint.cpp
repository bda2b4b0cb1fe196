#include "tools/commands/seed_checkpoint.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <string>

#include "tools/launcher/host_agent.hpp"
#include "tools/worker/environment.hpp"

namespace troupe {

Result<int> write_seed(const TrainRequest& request, const JobConfig& config, const PreparedRun& run, Log& log, const SignalQueue& signals) {
  WorkerCommand command{.executable = worker_program(),
                        .arguments = {request.config.string(), "--seed-checkpoint"},
                        .environment = {{"TROUPE_LAUNCHER_PID", std::to_string(::getpid())}},
                        .log = run.folder.log_of(0),
                        .first = Rank{0},
                        .ranks = 1};
  command.arguments.insert(command.arguments.end(), request.overrides.begin(), request.overrides.end());
  HostAgent agent;
  if (auto started = agent.start(command); !started) return started.error();
  const auto ends = agent.stop(std::chrono::hours{1}, &signals);
  if (const auto signal = agent.cut_short()) {
    log.warning(fmt::format("{} while the seed checkpoint is written: stopped, there is none", ::strsignal(*signal)));
    return 128 + *signal;
  }
  if (ends.size() != 1 || !ends.front().clean()) {
    log.error(fmt::format("the seed checkpoint was not written: {}; its log ends with:\n{}", ends.front().describe(), tail_of(command.log, 8)));
    return exit_failed;
  }
  log.info(fmt::format("seed checkpoint: the initial weights are the checkpoint of step 0 in {}", (run.folder.path() / config.checkpoint.folder).string()));
  return exit_done;
}

Result<void> check_seed(const JobConfig& config, std::uint32_t world_size) {
  if (!config.checkpoint.create_seed_checkpoint) return {};
  if (!config.checkpoint.enable) return Error{"checkpoint.create_seed_checkpoint needs checkpoint.enable = true"};
  if (world_size == 1) return {};
  return Error{fmt::format("checkpoint.create_seed_checkpoint is for one rank, {} were asked for: initial weights do not depend on the ranks", world_size)};
}

}  // namespace troupe
