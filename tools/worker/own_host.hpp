#pragma once
#include <filesystem>
#include <memory>

#include "src/base/log.hpp"
#include "src/base/result.hpp"
#include "src/config/job_config.hpp"
#include "tools/launcher/job_host.hpp"
#include "tools/launcher/job_setup.hpp"
#include "tools/launcher/signals.hpp"
#include "tools/worker/environment.hpp"

namespace troupe {

/// The Coordinator inside rank 0, where torchrun or Slurm started the workers and no launcher is there. Knows policy `stop` only.
class OwnHost {
 public:
  /// Prepares the run's folder and listens at the place's coordinator address; the secret goes into RUN/control.json, which the other
  /// ranks read. A port in use is an error that names it.
  [[nodiscard]] static Result<std::unique_ptr<OwnHost>> start(const JobConfig& config, const std::filesystem::path& config_file, const WorkerPlace& place,
                                                              bool overwrite);
  /// Waits, at most `patience`, for the job's end; returns its exit code. A signal (but SIGUSR1) ends the wait: 128 + its number.
  [[nodiscard]] int finish(std::chrono::milliseconds patience, const SignalQueue& signals);

 private:
  OwnHost(const JobConfig& config, PreparedRun run) : config_(config), run_(std::move(run)) {}
  JobConfig config_;
  PreparedRun run_;
  std::unique_ptr<Log> log_;
  std::unique_ptr<RingTracer> tracer_;
  std::unique_ptr<JobRecord> record_;
  std::unique_ptr<JobHost> host_;
};

}  // namespace troupe
