#include "tools/launcher/job_setup.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>

#include "src/optimizer/warmup_stable_decay.hpp"
#include "tools/launcher/secret.hpp"

namespace troupe {

Result<void> check_world(const JobConfig& config, std::uint32_t world_size) {
  auto mesh = config.mesh(world_size);
  if (!mesh) return mesh.error();
  auto micro_batches = config.micro_batches(mesh->data_parallel());
  if (!micro_batches) return micro_batches.error();
  return {};
}

Result<RunFolder> open_run_folder(const JobConfig& config, bool overwrite) {
  RunFolder::Request request{.path = config.job.dump_folder, .overwrite = overwrite, .resumable = false, .why_not = {}};
  auto folder = RunFolder::open(request);
  if (!folder) return folder;
  if (auto written = folder->write("config.toml", config.to_toml()); !written) return written.error();
  return folder;
}

CoordinatorOptions coordinator_options(const JobConfig& config, const RunFolder&, std::uint32_t world_size, Log& log) {
  const FittedSchedule fitted = fit_schedule(config.lr_scheduler, static_cast<std::uint64_t>(config.training.steps));
  for (const std::string& warning : fitted.warnings) log.warning(warning);
  CoordinatorOptions options;
  options.epoch.world_size = world_size;
  options.epoch.config_hash = config.hash();
  options.epoch.init_timeout = std::chrono::seconds{config.comm.init_timeout_seconds};
  options.train_timeout = std::chrono::seconds{config.comm.train_timeout_seconds};
  options.steps.last_step = Step{static_cast<std::uint64_t>(config.training.steps)};
  options.steps.learning_rate = [peak = config.optimizer.lr, schedule = fitted.schedule](Step step) { return peak * schedule.factor(step); };
  options.steps.save_at_stop = config.checkpoint.enable;
  options.steps.snapshot_due = [checkpoint = config.checkpoint, last = options.steps.last_step](Step step) {
    if (!checkpoint.enable) return false;
    return step == last || step.value() % static_cast<std::uint64_t>(checkpoint.interval) == 0 || (step == Step{1} && checkpoint.enable_first_step_checkpoint);
  };
  return options;
}

std::unique_ptr<JobRecord> open_record(const JobConfig& config, const RunFolder& folder, std::uint32_t world_size, Log& log) {
  return std::make_unique<JobRecord>(folder.path(), world_size, config.checkpoint.enable, [](const StepRecord&) {}, log);
}

std::string new_job_name() {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  return fmt::format("troupe-{:x}-{}-{}", seconds, ::getpid(), to_hex(random_nonce()).substr(0, 8));
}

int report_end(const JobEnd& end, const JobConfig& config, const RunFolder& folder, Log& log) {
  if (!end.ok) {
    log.error(fmt::format("the run has failed after step {}: {}", end.last_step.value(), end.cause));
    return 1;
  }
  const std::string saved = end.sealed ? fmt::format("checkpoint of step {} in {}", end.sealed->value(), (folder.path() / config.checkpoint.folder).string())
                                       : config.checkpoint.enable ? std::string{"no new checkpoint"} : std::string{"no checkpoint (checkpoint.enable = false)"};
  const bool whole = end.last_step.value() >= static_cast<std::uint64_t>(config.training.steps);
  if (whole) log.info(fmt::format("training completed: {} steps; {}; metrics in {}", end.last_step.value(), saved, (folder.path() / "metrics.jsonl").string()));
  else log.info(fmt::format("stopped on request after step {} of {}; {}", end.last_step.value(), config.training.steps, saved));
  return 0;
}

}  // namespace troupe
