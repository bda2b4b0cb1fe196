#include "tools/launcher/job_setup.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <limits>
#include <stdexcept>

#include "src/data/open_documents.hpp"
#include "src/model/families.hpp"
#include "src/optimizer/warmup_stable_decay.hpp"
#include "src/trace/chrome_trace.hpp"
#include "tools/launcher/data_files.hpp"
#include "tools/launcher/job_sizes.hpp"
#include "tools/launcher/secret.hpp"
#include "tools/launcher/training_job.hpp"

namespace troupe {

Result<void> check_world(const JobConfig& config, std::uint32_t world_size) {
  if (auto built = config.can_run(); !built) return built.error();
  auto mesh = config.mesh(world_size);
  if (!mesh) return mesh.error();
  if (config.data.loader_hosts > world_size)
    return Error{fmt::format("data.loader_hosts = {} for {} ranks: a loader process needs a rank to load for; 0 to {} are possible", config.data.loader_hosts,
                             world_size, world_size)};
  const auto vocabulary = vocabulary_of(config.data, config.model.hf_assets_path);
  if (!vocabulary) return vocabulary.error();
  const auto model = describe_model(config.model, *vocabulary);
  if (!model) return model.error();
  return check_sizes(config, *model, *mesh);
}

namespace {

Result<std::filesystem::path> inside_run_folder(std::string_view key, const std::string& folder) {
  std::filesystem::path path = std::filesystem::path(folder).lexically_normal();
  if (path.empty() || path.is_absolute() || *path.begin() == ".." || *path.begin() == ".")
    return Error{fmt::format("{} = \"{}\": expected the name of a folder inside job.dump_folder", key, folder)};
  return path;
}

/// RUN/config.toml, unless that is the file which was given.
Result<void> keep_config(const JobConfig& config, const std::filesystem::path& file, PreparedRun& run) {
  const std::filesystem::path own = run.folder.path() / "config.toml";
  std::error_code none;
  if (file.empty() || !std::filesystem::equivalent(own, file, none)) return run.folder.write("config.toml", config.to_toml());
  std::ifstream stream(own);
  if (std::string(std::istreambuf_iterator<char>(stream), {}) != config.to_toml())
    run.warnings.push_back(
        fmt::format("{} is the configuration that was given: it stays as it is, without the merged values; a checkpoint's manifest holds those", own.string()));
  return {};
}

/// Those of an earlier run, perhaps of more ranks: they would be merged with this one's.
void remove_old_traces(const std::filesystem::path& folder) {
  std::error_code ignored;
  for (const auto& file : rank_traces(folder)) std::filesystem::remove(file, ignored);
  std::filesystem::remove(folder / "trace.json", ignored);
}

}  // namespace

Result<PreparedRun> prepare_run(const JobConfig& config, const std::filesystem::path& config_file, bool overwrite) {
  const auto checkpoint_folder = inside_run_folder("checkpoint.folder", config.checkpoint.folder);
  if (!checkpoint_folder) return checkpoint_folder.error();
  const std::filesystem::path& checkpoints = *checkpoint_folder;
  std::vector<std::filesystem::path> outputs;
  for (const auto& [key, folder] :
       {std::pair{"metrics.save_tb_folder", config.metrics.save_tb_folder}, std::pair{"profiling.save_traces_folder", config.profiling.save_traces_folder},
        std::pair{"profiling.save_memory_snapshot_folder", config.profiling.save_memory_snapshot_folder}}) {
    auto output = inside_run_folder(key, folder);
    if (!output) return output.error();
    outputs.push_back(std::move(*output));
  }
  if (config.data.dataset_path.empty() && !config.checkpoint.create_seed_checkpoint)
    return Error{"training.dataset_path is not set: name the files to train on, as a file, a glob or a list of them"};
  // Looked at before the lock, to decide; looked for and cleaned after it.
  const auto storage = make_posix_storage();
  const auto sealed = CheckpointStore(std::filesystem::path(config.job.dump_folder) / checkpoints, *storage).steps();
  if (!sealed) return sealed.error();
  RunFolder::Request request{.path = config.job.dump_folder,
                             .checkpoints = checkpoints,
                             .keep = config_file,
                             .overwrite = overwrite,
                             .resumable = config.checkpoint.enable && !sealed->empty(),
                             .why_not = {}};
  request.outputs = std::move(outputs);
  if (!sealed->empty() && !config.checkpoint.enable) request.why_not = "holds checkpoints, which checkpoint.enable = false does not resume from";
  auto folder = RunFolder::open(request);
  if (!folder) return folder.error();
  PreparedRun run{std::move(folder.value()), nullptr, nullptr, {}};
  run.checkpoints = std::make_shared<JobCheckpoints>(config, run.folder.path());
  if (auto looked = run.checkpoints->look(run.warnings); !looked) return looked.error();
  const std::uint64_t rows_before = run.checkpoints->found() ? run.checkpoints->found()->start.data_row : 0;
  run.live = std::make_shared<LiveConfig>(
      config, LiveConfig::Start{.schedule_before = run.checkpoints->schedule_before(), .step = run.checkpoints->restore_step(), .row = rows_before});
  if (auto planned = run.live->plan(config.live.changes); !planned) return planned.error();
  const Step last{static_cast<std::uint64_t>(config.training.steps)};
  if (const auto& found = run.checkpoints->found();
      found && found->own && found->checkpoint.manifest.position.model_only && found->start.step > Step{0} && found->start.step < last)
    return Error{
        fmt::format("{} holds weights alone (checkpoint.last_save_model_only): nothing to go on from. Resume from an earlier one with --checkpoint.load_step, "
                    "or begin anew with --overwrite",
                    found->checkpoint.folder.string())};
  if (auto written = keep_config(config, config_file, run); !written) return written.error();
  for (std::string& difference : compare_data_files(config, run.folder.path(), run.checkpoints->restore_step() > Step{0}))
    run.warnings.push_back(std::move(difference));
  if (config.trace.enable && run.checkpoints->restore_step() < last) remove_old_traces(run.folder.path() / "trace");
  return run;
}

namespace {

/// Can these ranks be built so? All of their plans are compiled and checked, as the ranks themselves will.
Result<TrainingJob> planned(const Result<JobConfig>& config, std::uint32_t ranks) {
  if (!config) return config.error();
  auto job = plan_training(*config, 0, ranks);
  for (std::uint32_t rank = 1; job && rank < std::min(ranks, 8U); ++rank) job = plan_training(*config, rank, ranks);
  return job;
}

std::string memory_of(const TrainingJob& job) {
  std::size_t device = 0;
  const TrainingEstimate estimate = estimate_training(job.model, job.options);
  for (const MemoryItem& item : estimate.memory) device += item.per_slot || item.placement == Placement::host ? 0 : item.bytes;
  return fmt::format("{:.1f} MiB", static_cast<double>(device + edges_of(job, estimate).device_bytes) / 1048576.0);
}

/// "device memory planned a rank: 0.4 MiB now, 0.5 MiB then; the launcher holds 2.1 MiB of state meanwhile".
std::string describe_change(const LiveConfig& live, const std::vector<std::string>& changes, std::uint32_t ranks) {
  const auto now = planned(live.epoch_config(Step{std::numeric_limits<std::uint32_t>::max()}, ranks), ranks);
  const auto then = planned(live.epoch_config_with(changes, ranks), ranks);
  if (!now || !then) return {};
  std::size_t state = 0;
  for (const MemoryItem& item : estimate_training(then->model, then->options).memory)
    if (item.kind == "fp32 masters" || item.kind == "optimizer moments") state += item.bytes;
  return fmt::format(
      "device memory planned a rank: {} now, {} then; mesh dp_replicate {} × dp_shard {}, {} micro-batches of {} rows a rank; the launcher takes in "
      "{:.1f} MiB of state meanwhile",
      memory_of(*now), memory_of(*then), then->options.replicas, then->options.world, then->options.micro_batches, then->options.batch.rows,
      static_cast<double>(state * ranks) / 1048576.0);
}

EpochChanges epoch_changes(const std::shared_ptr<LiveConfig>& live) {
  EpochChanges changes;
  changes.next = [live](Step after) { return live->next_epoch(after); };
  changes.changes = [live](Step first, std::uint32_t ranks) { return live->epoch_changes(first, ranks); };
  changes.withdraw = [live](Step from) { live->withdraw(from); };
  return changes;
}

}  // namespace

CoordinatorOptions coordinator_options(const JobConfig& config, const PreparedRun& run, std::uint32_t world_size, Log& log) {
  const FittedSchedule fitted = fit_schedule(config.lr_scheduler, static_cast<std::uint64_t>(config.training.steps));
  for (const std::string& warning : fitted.warnings) log.warning(warning);
  CoordinatorOptions options;
  run.live->ranks(world_size);
  options.epoch.world_size = world_size;
  options.epoch.config_hash = config.hash();
  options.epoch.restore_step = run.checkpoints->restore_step();
  options.epoch.init_timeout = std::chrono::seconds{config.comm.init_timeout_seconds};
  options.guard = [live = run.live](Step step) {
    const GuardSettings guard = live->guard(step);
    return GuardOptions{.stop_at_nonfinite = guard.nonfinite == "stop",
                        .roll_back_at_nonfinite = guard.nonfinite == "rollback",
                        .spike_factor = guard.spike_factor,
                        .stop_at_spike = guard.spike == "stop",
                        .steps_back = static_cast<std::uint32_t>(guard.rollback_steps),
                        .most = static_cast<std::uint32_t>(guard.rollbacks)};
  };
  options.rollback_steps = config.snapshots().rollback_steps;
  options.spike_window = static_cast<std::size_t>(config.training.guard.spike_window);
  options.set_aside = [checkpoints = run.checkpoints, &log](Step after, Step until) { checkpoints->set_aside(after, until, log); };
  options.train_timeout_at = [live = run.live](Step step) { return live->train_timeout(step); };
  options.steps_in_backward = config.optimizer.early_step_in_backward;
  options.steps.last_step = Step{static_cast<std::uint64_t>(config.training.steps)};
  options.steps.learning_rate = [live = run.live](Step step) { return live->learning_rate(step); };
  options.steps.save_at_stop = config.checkpoint.saves();
  options.steps.wait_for_saves = config.checkpoint.waits_for_saves();
  options.steps.last_at = [live = run.live](Step step) { return live->last_step(step); };
  options.steps.snapshot_due = [live = run.live](Step step) { return live->snapshot_due(step); };
  if (config.validation.enable) options.steps.evaluation_due = [live = run.live](Step step) { return live->evaluation_due(step); };
  options.change = [live = run.live](const std::vector<std::string>& changes, Step from) { return live->change(changes, from); };
  options.tokens_before = [checkpoints = run.checkpoints](Step) { return checkpoints->tokens(); };
  options.data_row = [live = run.live](Step step) { return live->data_row(step); };
  options.changes = epoch_changes(run.live);
  options.recovery.respawn = config.elastic.respawn();
  options.recovery.shrink = config.elastic.shrink();
  options.recovery.min_ranks = static_cast<std::uint32_t>(config.elastic.min_ranks);
  options.recovery.attempts = static_cast<std::uint32_t>(config.elastic.attempts);
  options.recovery.keep_every = config.snapshots().keep_every;
  options.recovery.describe_data = [row = options.data_row](Step step) {
    return fmt::format("rows {} to {} of the data order", row(Step{step.value() - 1}), row(step) - 1);
  };
  options.seal = [checkpoints = run.checkpoints, live = run.live, &log](const CheckpointParts& parts) {
    const auto ranks = static_cast<std::uint32_t>(parts.shards.size());
    const auto of_epoch = live->epoch_config(parts.step, ranks);
    if (!of_epoch) throw std::runtime_error(of_epoch.error().message);
    checkpoints->seal(parts, *of_epoch, ranks, live->data_row(parts.step), log);
  };
  options.give_up = [checkpoints = run.checkpoints](Step step, EpochId epoch) { checkpoints->give_up(step, epoch); };
  return options;
}

Result<std::unique_ptr<JobRecord>> open_record(const JobConfig& config, const PreparedRun& run, std::uint32_t world_size, bool colour, Log& log, Tracer* tracer,
                                               std::shared_ptr<StepTimes> step_times) {
  JobRecordOptions options;
  options.step_times = std::move(step_times);
  options.tracer = tracer;
  options.run_folder = run.folder.path();
  options.world_size = world_size;
  options.checkpoints = config.checkpoint.saves();
  options.restored = run.checkpoints->restore_step();
  options.metrics = config.metrics;
  options.log_freq = [live = run.live](Step step) { return live->log_freq(step); };
  options.colour = colour;
  options.config = config.to_toml();
  const auto vocabulary = vocabulary_of(config.data, config.model.hf_assets_path);
  if (!vocabulary) return vocabulary.error();
  const auto model = describe_model(config.model, *vocabulary);
  if (!model) return model.error();
  options.rates.flops_per_token = model->flops_per_token(config.training.seq_len);
  options.rates.flops_per_token_causal = model->causal_flops_per_token(config.training.seq_len);
  return JobRecord::open(options, log);
}

Result<void> check_change(const LiveConfig& live, ChangeRequest& request, std::uint32_t ranks) {
  if (request.join > 0) return {};
  if (request.leave > 0) {  // fewer ranks take more micro-batches each, which not every plan can
    const std::uint32_t then = ranks - std::min(request.leave, ranks - 1);
    if (auto job = planned(live.epoch_config(Step{std::numeric_limits<Step::Value>::max()}, then), then); !job) return job.error();
    return {};
  }
  if (request.fault_rule.empty()) {
    if (auto checked = live.check(request.set); !checked || !live.takes_epoch(request.set)) return checked;
    if (auto job = planned(live.epoch_config_with(request.set, ranks), ranks); !job) return job.error();
    request.new_epoch = true;
    request.ranks = ranks;
    if (request.by.empty()) request.means = describe_change(live, request.set, ranks);
    return {};
  }
  FaultSettings settings;
  settings.rules = {request.fault_rule};
  if (auto rules = rules_of(settings); !rules) return rules.error();
  return {};
}

std::string new_job_name() {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  return fmt::format("troupe-{:x}-{}-{}", seconds, ::getpid(), to_hex(random_nonce()).substr(0, 8));
}

std::unique_ptr<RingTracer> launcher_tracer(const JobConfig& config) {
  if (!config.trace.enable) return nullptr;
  return std::make_unique<RingTracer>(RingTracerOptions{{launcher_rank}, static_cast<std::size_t>(config.trace.events)});
}

void write_launcher_trace(const RingTracer* tracer, const RunFolder& folder, Log& log) {
  if (tracer == nullptr) return;
  const std::filesystem::path trace = folder.path() / "trace";
  std::error_code ignored;
  std::filesystem::create_directories(trace, ignored);
  if (auto written = tracer->write(trace / launcher_trace); !written) log.warning(written.error().message);
}

int report_end(const JobEnd& end, const JobConfig& config, Step last, const RunFolder& folder, const JobRecord& record, Log& log) {
  const std::optional<double> last_loss = record.last_loss();
  if (!record.lost().empty()) log.error("at the end of the run: " + record.lost() + "; these are lost");
  if (!end.ok) {
    log.error(fmt::format("the run has failed after step {}: {}", end.last_step.value(), end.cause));
    return 1;
  }
  const std::string saved = end.sealed                    ? fmt::format("checkpoint of step {} in {}", end.sealed->value(),
                                                                        (folder.path() / config.checkpoint.folder / fmt::format("step-{}", end.sealed->value())).string())
                            : config.checkpoint.load_only ? std::string{"no checkpoint (checkpoint.load_only)"}
                            : config.checkpoint.enable    ? std::string{"no new checkpoint"}
                                                          : std::string{"no checkpoint (checkpoint.enable = false)"};
  const std::filesystem::path trace = folder.path() / "trace";
  const std::string made =
      fmt::format("{}; {}; metrics in {}; {}", last_loss ? fmt::format("last loss {:.4f}", *last_loss) : std::string{"no loss"}, saved,
                  (folder.path() / "metrics.jsonl").string(),
                  config.trace.enable && !rank_traces(trace).empty() ? fmt::format("timeline in {} (troupe trace {})", trace.string(), folder.path().string())
                                                                     : std::string{"no timeline"});
  const bool whole = end.last_step >= last;
  if (whole)
    log.info(fmt::format("Training completed: {} steps; {}", end.last_step.value(), made));
  else
    log.info(fmt::format("stopped on request after step {} of {}; {}", end.last_step.value(), last.value(), made));
  return record.lost().empty() ? 0 : 1;
}

}  // namespace troupe
