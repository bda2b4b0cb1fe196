#include "tools/worker/own_host.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>

namespace troupe {

Result<std::unique_ptr<OwnHost>> OwnHost::start(const JobConfig& config, const std::filesystem::path& config_file, const WorkerPlace& place, bool overwrite) {
  if (auto fits = check_world(config, place.world_size); !fits) return fits.error();
  if (config.data.loader_hosts > 0)
    return Error{
        fmt::format("data.loader_hosts = {}: loader processes are started by `troupe train`; under torchrun and Slurm set it to 0", config.data.loader_hosts)};
  if (config.checkpoint.create_seed_checkpoint)
    return Error{"checkpoint.create_seed_checkpoint: a seed checkpoint is written by `troupe train`, with one rank"};
  if (config.elastic.recovers())
    return Error{"elastic.policy = \"" + config.elastic.policy +
                 "\": processes are started again by `troupe train`; under torchrun and Slurm use policy = \"stop\" and their own restarts"};
  if (config.training.guard.rolls_back())
    return Error{"training.guard: rollbacks need `troupe train`, whose launcher holds the snapshots that they go back to"};
  auto run = prepare_run(config, config_file, overwrite);
  if (!run) return run.error();
  std::unique_ptr<OwnHost> own{new OwnHost(config, std::move(run.value()))};
  const bool colour = ::isatty(STDOUT_FILENO) == 1;
  own->log_ =
      make_log(LogOptions{.who = "coordinator", .file = (own->run_.folder.path() / "logs" / "coordinator.log").string(), .console = true, .colour = colour});
  for (const std::string& warning : own->run_.warnings) own->log_->warning(warning);
  own->tracer_ = launcher_tracer(config);
  auto record = open_record(config, own->run_, place.world_size, colour, *own->log_, own->tracer_.get());
  if (!record) return record.error();
  own->record_ = std::move(record.value());
  const Secret secret = Secret::random();
  JobHostOptions options;
  options.world_size = place.world_size;
  options.job = new_job_name();
  options.secret = secret;
  options.tracer = own->tracer_.get();
  options.listen_on = place.coordinator_host;
  options.port = place.coordinator_port;
  options.config = config.to_toml();
  options.run_folder = std::filesystem::absolute(own->run_.folder.path());
  options.network_devices = network_devices(process_environment(), config.comm.interface);
  options.watches_connections = true;
  options.check_change = [live = own->run_.live](ChangeRequest& request, std::uint32_t ranks) -> Result<void> {
    if (live->takes_epoch(request.set))
      return Error{"what takes a new epoch can be changed under `troupe train` alone, whose launcher holds the state meanwhile"};
    return check_change(*live, request, ranks);
  };
  if (own->run_.live->next_epoch(Step{0}))
    return Error{"[[changes]] of keys that take a new epoch need `troupe train`, whose launcher holds the state meanwhile"};
  options.coordinator = coordinator_options(config, own->run_, place.world_size, *own->log_);
  auto host = JobHost::start(std::move(options), *own->record_, *own->log_);
  if (!host) return host.error();
  own->host_ = std::move(host.value());
  if (auto written = own->run_.folder.write_control(fmt::format("{}:{}", place.coordinator_host, own->host_->port()), secret.hex()); !written)
    return written.error();
  return own;
}

int OwnHost::finish(std::chrono::milliseconds patience, const SignalQueue& signals) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!host_->end()) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    if (left <= 0) {
      log_->error("the job did not come to its end");
      return 1;
    }
    std::array<pollfd, 2> waiting{pollfd{host_->bell().get(), POLLIN, 0}, pollfd{signals.get(), POLLIN, 0}};
    ::poll(waiting.data(), waiting.size(), static_cast<int>(left));
    while (const auto signal = signals.next()) {
      if (*signal == SIGUSR1 || *signal == SIGHUP) continue;
      log_->warning(fmt::format("{} while the job ends: ending at once", ::strsignal(*signal)));
      return 128 + *signal;
    }
  }
  write_launcher_trace(tracer_.get(), run_.folder, *log_);
  return report_end(*host_->end(), config_, run_.live->last_step(host_->end()->last_step), run_.folder, *record_, *log_);
}

}  // namespace troupe
