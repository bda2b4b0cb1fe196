#include "tools/worker/training_rank.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <stdexcept>
#include <utility>

#include "src/checkpoint/checkpoint_store.hpp"
#include "src/checkpoint/faulty_storage.hpp"
#include "src/checkpoint/kept_state.hpp"
#include "src/checkpoint/restore.hpp"
#include "src/checkpoint/restore_foreign.hpp"
#include "src/checkpoint/restore_point.hpp"
#include "src/checkpoint/snapshot.hpp"
#include "src/data/loader.hpp"
#include "src/device/device.hpp"
#include "src/device/state_copies.hpp"
#include "src/faults/fault_ledger.hpp"
#include "src/metrics/progress_bar.hpp"
#include "src/model/recompute_pareto.hpp"
#include "src/model/shard_memory.hpp"
#include "src/runtime/actor_system.hpp"
#include "src/runtime/faulty_lane.hpp"
#include "src/trace/ring_tracer.hpp"
#include "src/transport/letter_faults.hpp"
#include "tools/launcher/foreign_start.hpp"
#include "tools/launcher/training_job.hpp"
#include "tools/worker/open_device.hpp"
#include "tools/worker/profiler.hpp"
#include "tools/worker/row_sources.hpp"
#include "tools/worker/start_lines.hpp"
#include "tools/worker/start_times.hpp"
#include "tools/worker/take.hpp"

namespace troupe {
namespace {

/// A rule has fired: a line in the rank's log, a mark in its trace.
void tell_fault(Runtime& runtime, Rank rank, const std::string& what) {
  runtime.log.warning(what);
  if (runtime.tracer != nullptr) runtime.tracer->mark(rank, what, runtime.clock.now());
}

/// The run's configuration with what this epoch changes in it.
JobConfig config_of(const JobConfig& base, const EpochStart& start) {
  if (start.changes.empty()) return base;
  std::vector<std::string> overrides;
  for (const std::string& change : start.changes) overrides.push_back("--" + change);
  JobConfig config = take(JobConfig::parse(base.to_toml(), "the run's configuration", overrides));
  config.model.extensions = base.model.extensions;
  config.data.tokenizer = base.data.tokenizer;
  return config;
}

class TrainingRankBody final : public RankBody {
 public:
  TrainingRankBody(const TrainingRankOptions& options, const EpochStart& start, std::shared_ptr<FaultPlan> faults, const std::stop_token& stop);
  [[nodiscard]] RankParts parts() override;
  [[nodiscard]] PlanHashes plan_hashes() const override {
    PlanHashes hashes;
    for (const CommunicatorKind kind : {CommunicatorKind::dp_shard, CommunicatorKind::dp_replicate, CommunicatorKind::world})
      for (std::size_t step = 0; step < step_kind_count; ++step) {
        const Plan& plan = job_.plans.of(static_cast<StepKind>(step));
        if (!plan.operations.empty()) hashes[kind] = hashes[kind] * 31 + plan.hash(kind);
      }
    return hashes;
  }
  [[nodiscard]] std::uint64_t arena_bytes() const override;
  void hand_over(EpochId epoch, Step step, std::uint32_t slot) override;
  [[nodiscard]] DeviceInfo device() const override;
  void abort(const std::string& cause) noexcept override {
    halt_->store(1);
    options_.batches->abort(start_.rank, cause);
    for (const auto& communicator : {dp_shard_, dp_replicate_, world_})
      if (communicator) communicator->abort(cause);
  }

 private:
  void open_data(const EpochStart& start);
  [[nodiscard]] LoaderOptions open_validation();
  void watch_reads(LoaderOptions& loader) const;
  [[nodiscard]] std::shared_ptr<const TokenDocuments> open_corpus(CorpusOptions source) const;
  void connect(const EpochStart& start, const std::stop_token& stop);
  void fill_state(const EpochStart& start);
  void draw_pareto() const;
  [[nodiscard]] KeepOptions keep_options() const;

  const TrainingRankOptions& options_;
  const JobConfig config_;  ///< of this epoch
  EpochStart start_;
  std::shared_ptr<FaultPlan> faults_;
  StartTimes times_{options_.runtime->clock};
  std::unique_ptr<Device> device_;
  std::shared_ptr<const TokenDocuments> validation_;  ///< null: none
  LoaderOptions validation_loader_;
  TrainingJob job_;
  std::unique_ptr<Storage> storage_ =
      make_faulty_storage(make_posix_storage(), faults_, [this](const std::string& what) { tell_fault(*options_.runtime, start_.rank, what); });
  CheckpointStore checkpoints_;
  std::unique_ptr<Buffer> halt_memory_ = device_->allocate(sizeof(HaltWord), Placement::host);
  HaltWord* halt_ = new (halt_memory_->bytes().data()) HaltWord(0);
  std::unique_ptr<TrainingModel> model_;
  std::shared_ptr<LoaderProgram> loader_;
  std::shared_ptr<SnapshotProgram> snapshot_;
  std::shared_ptr<KeepProgram> keep_;
  std::shared_ptr<Communicator> dp_shard_, dp_replicate_, world_;
  EdgeLayout layout_;
  std::shared_ptr<Profiler> profiler_;
  mutable bool told_of_memory_ = false;
};

TrainingRankBody::TrainingRankBody(const TrainingRankOptions& options, const EpochStart& start, std::shared_ptr<FaultPlan> faults, const std::stop_token& stop)
    : options_(options),
      config_(config_of(options.config, start)),
      start_(start),
      faults_(std::move(faults)),
      device_(times_.timed("device", [&] { return open_device(config_, options.local_rank); })),
      validation_loader_(open_validation()),
      job_(with_sources(take(plan_training(config_, start.place(), start.world(), device_->host_visible() ? 0 : device_->info().memory_bytes,
                                           validation_ ? validation_loader_.micro_batches : 0)),
                        config_, start)),
      checkpoints_(options.run_folder / config_.checkpoint.folder, *storage_),
      model_(times_.timed("memory", [&] { return std::make_unique<TrainingModel>(job_.model, job_.options, *device_, halt_); })) {
  times_.timed("state", [&] { fill_state(start); });
  times_.timed("data", [&] { open_data(start); });
  if (validation_) {
    validation_loader_.device = device_.get();
    loader_ = with_validation(loader_, make_loader(Corpora{validation_}, validation_loader_), job_.options.micro_batches);
  }
  if (config_.checkpoint.saves()) {
    SnapshotOptions snapshot{.rank = start.place(),
                             .world = start_.world(),
                             .model_only = {},
                             .copy_out = copies_out_of(*device_),
                             .replica = job_.options.replica,
                             .replicas = job_.options.replicas};
    snapshot.model_only = [&checkpoint = config_.checkpoint, last = static_cast<std::uint64_t>(config_.training.steps)](Step step) {
      return checkpoint.last_save_model_only && step.value() == last;
    };
    if (config_.checkpoint.last_save_ema) snapshot.instead = model_->averages();
    const std::string& type = config_.checkpoint.export_dtype;
    snapshot.export_type = type == "bfloat16" ? StoredType::bf16 : type == "float16" ? StoredType::f16 : StoredType::f32;
    snapshot_ = make_snapshot_program(model_->state(), snapshot, *storage_);
  }
  if (const SnapshotPolicy snapshots = config_.snapshots(); snapshots.keep_every > 0) {
    if (options_.memory == nullptr)
      throw std::runtime_error("elastic.policy = \"" + config_.elastic.policy +
                               "\" and rollbacks of training.guard need `troupe train`, whose launcher holds the snapshots");
    keep_ = make_keep_program(model_->state(), keep_options(), *options_.memory);
  }
  layout_ = edges_of(job_, model_->estimate(), snapshot_ ? snapshot_->snapshot_bytes() : 0);
  if (const ProfilingSettings& profiling = config_.profiling; profiling.enable_profiling || profiling.enable_memory_snapshot)
    profiler_ = std::make_shared<Profiler>(Profiler::Options{.settings = profiling,
                                                             .run_folder = options_.run_folder,
                                                             .rank = start.rank,
                                                             .tracer = options_.tracer,
                                                             .log = &options_.runtime->log,
                                                             .layout = memory_layout_json(model_->estimate(), layout_)});
  if (start.place() == 0 && start.epoch == EpochId{1}) {
    tell_start(options_.runtime->log, config_, job_, *model_, layout_, device(), start.first_step, start_.world());
    draw_pareto();
  }
  times_.timed("communicators", [&] { connect(start, stop); });
  options_.runtime->log.info("built: " + times_.describe());
  if (start.place() == 0) tell_predicted_memory(options_.runtime->log, *device_, *model_, layout_);
}

KeepOptions TrainingRankBody::keep_options() const {
  return {.copy_out = device_->host_visible() ? KeepOptions{}.copy_out : copies_out_of(*device_), .copy_in = {}, .slots = config_.snapshots().slots()};
}

void TrainingRankBody::hand_over(EpochId epoch, Step step, std::uint32_t slot) {
  if (options_.memory == nullptr) throw std::runtime_error("this process has no memory of its host agent");
  const auto program = make_keep_program(model_->state(), keep_options(), *options_.memory);
  const auto lane = device_->open_lane(LaneKind::copy, start_.rank, options_.runtime->clock, nullptr);
  std::promise<Outcome> done;
  LaneOperation copy;
  copy.name = "hand over";
  copy.where = {epoch, step, {}, {}};
  copy.work = [&](Stream& stream) { (void)program->keep(stream, epoch, step, slot); };
  copy.done = [&](const Outcome& outcome) { done.set_value(outcome); };
  lane->post(std::move(copy));
  if (const Outcome outcome = done.get_future().get(); !outcome.ok()) throw std::runtime_error(outcome.cause);
}

void TrainingRankBody::draw_pareto() const {
  if (!config_.activation_checkpoint.visualize_memory_budget_pareto) return;
  const auto folder = options_.run_folder / "memory_budget_pareto";
  const TrainingEstimate& estimate = model_->estimate();
  const auto written = write_pareto(folder, memory_budget_pareto(job_.model, estimate.layout, estimate.tapes.sizes), job_.model.name);
  if (!written) return options_.runtime->log.warning("activation_checkpoint.visualize_memory_budget_pareto: " + written.error().message);
  options_.runtime->log.info("what each memory_budget costs and saves: " + folder.string());
}

/// Asked when the actors are there, and with them the slots.
std::uint64_t TrainingRankBody::arena_bytes() const {
  const std::size_t planned = model_->device_bytes() + layout_.device_bytes, allocated = device_->allocated_bytes(Placement::device);
  if (planned != allocated && !std::exchange(told_of_memory_, true))
    options_.runtime->log.warning(fmt::format("device memory: {} bytes were planned, {} are allocated", planned, allocated));
  return allocated;
}

DeviceInfo TrainingRankBody::device() const {
  DeviceInfo info = device_->info();
  if (device_->host_visible()) info.memory_bytes = 0;
  const MetricsSettings& metrics = config_.metrics;
  if (metrics.peak_flops > 0) info.peak_flops = metrics.peak_flops;
  if (metrics.peak_flops_fp8 > 0) info.peak_flops_fp8 = metrics.peak_flops_fp8;
  return info;
}

void TrainingRankBody::fill_state(const EpochStart& start) {
  model_->initialise(static_cast<std::uint64_t>(config_.debug.seed));
  const auto require = [](const Result<void>& done) {
    if (!done) throw RestorePointLost(done.error().message);
  };
  const EpochOrigin& from = start.restore;
  if (from.place == EpochOrigin::Place::memory) {
    if (options_.memory == nullptr) throw RestorePointLost("this process has no memory of its host agent");
    const auto restored = restore_kept(model_->state(), {.copy_out = {}, .copy_in = copies_into(*device_)}, *options_.memory, from.slot, from.epoch, from.step);
    if (!restored) throw RestorePointLost(restored.error().message);
    return model_->after_restore();
  }
  if (start.restore_step != options_.resumed_from) {  // a checkpoint that this run has sealed: all of it
    const auto found = checkpoints_.open(start.restore_step);
    if (!found) throw RestorePointLost(found.error().message);
    require(restore_state(found->manifest, found->folder, *storage_, model_->state(), {.copy_in = copies_into(*device_)}));
    return model_->after_restore();
  }
  const auto point = take(restore_point_at(start.restore_step, config_.checkpoint, checkpoints_, *storage_));
  if (!point) return;
  const RestoreOptions parts{.model_only = !point->optimizer, .leave_model = !point->model, .leave = std::string(ema_prefix), .copy_in = copies_into(*device_)};
  const auto& [folder, manifest] = point->checkpoint;
  StateTensors state = model_->state();
  const auto average = [](const auto& tensor) { return tensor.name.starts_with(ema_prefix); };
  const bool averaged = point->optimizer && std::ranges::any_of(manifest.tensors, [](const auto& stored) { return stored.first.starts_with(ema_prefix); });
  if (!averaged) std::erase_if(state, average);
  if (point->foreign)
    require(restore_foreign(*point->foreign, take(foreign_names(config_, *point->foreign)), job_.model.head_dim, *storage_, state, parts, folder.string()));
  else
    require(restore_state(manifest, folder, *storage_, state, parts));
  model_->after_restore();
  if (job_.options.ema_decay > 0 && !averaged) {
    model_->begin_averages();
    options_.runtime->log.warning(fmt::format("optimizer.ema_decay: {} holds no averages of the weights; they begin at its weights", folder.string()));
  }
}

std::shared_ptr<const TokenDocuments> TrainingRankBody::open_corpus(CorpusOptions source) const {
  Log& log = options_.runtime->log;
  const auto line = [&log](std::string_view text) {
    while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
    log.info(text);
  };
  ProgressBar bar("indexing text", "MiB", 1048576, false, options_.runtime->clock, line),
      tokenizing("tokenizing", "MiB", 1048576, false, options_.runtime->clock, line);
  DocumentOptions how = take(document_options(config_.data, config_.model.hf_assets_path));
  source.index_folder = (options_.run_folder / "index").string();  // the next start of this run finds it
  if (start_.place() == 0) source.progress = [&bar](std::uint64_t read, std::uint64_t total) { bar.update(read, total); };
  if (start_.place() == 0) how.progress = [&tokenizing](std::uint64_t done, std::uint64_t total) { tokenizing.update(done, total); };
  if (start_.place() == 0) how.warn = [&log](const std::string& text) { log.warning(text); };
  return take(open_documents(source, how));
}

LoaderOptions TrainingRankBody::open_validation() {
  const JobConfig& config = config_;
  if (!config.validation.enable) return {};
  validation_ = open_corpus(corpus_options(config.data, config.validation));
  auto loader = validation_loader_options(*validation_, config.data, config.validation, start_.place(), start_.world());
  if (loader.micro_batches == 0)
    throw std::runtime_error(
        fmt::format("validation.dataset_path: {} make no row of validation.seq_len = {} tokens", validation_->describe(), config.validation.seq_len));
  watch_reads(loader);
  if (start_.place() == 0)
    options_.runtime->log.info(
        fmt::format("validation: {} rows of {} tokens in {} batches a rank", loader.global_rows, config.validation.seq_len, loader.micro_batches));
  return loader;
}

void TrainingRankBody::watch_reads(LoaderOptions& loader) const {
  loader.clock = &options_.runtime->clock;
  loader.slow_read_seconds = config_.data.slow_read_seconds;
  loader.warn = [&log = options_.runtime->log](const std::string& text) { log.warning(text); };
}

void TrainingRankBody::open_data(const EpochStart& start) {
  if (const auto hosts = static_cast<std::uint32_t>(config_.data.loader_hosts); hosts > 0) {
    if (!device_->host_visible())
      throw std::runtime_error("data.loader_hosts: batches of loader processes are received into host memory, but slots of this device are not: set it to 0");
    const std::uint32_t number = loader_of(start.rank, hosts);
    loader_ = options_.batches->program(*options_.runtime, start.epoch, start.rank, loader_rank(number, start_.world()));
    return options_.runtime->log.info(fmt::format("data: batches come from loader process {}", number));
  }
  Corpora corpora;
  for (const CorpusOptions& source : sources_of(config_.data)) corpora.push_back(open_corpus(source));
  LoaderOptions loader = loader_of_epoch(config_, start);
  const bool tells = start.place() == 0 && start.epoch == EpochId{1};
  for (std::size_t i = 0; i < corpora.size() && tells; ++i)
    options_.runtime->log.info(fmt::format("data: {}{}", corpora[i]->describe(), corpora.size() > 1 ? fmt::format(", weight {}", loader.blend[i]) : ""));
  if (const auto tokenizer = take(open_tokenizer(config_.model.hf_assets_path, config_.data.tokenizer.get())); tokenizer && tells)
    for (const std::string& warning : tokenizer->parts().warnings) options_.runtime->log.warning(warning);
  loader.device = device_.get();
  watch_reads(loader);
  loader_ = make_loader(corpora, loader);
}

void TrainingRankBody::connect(const EpochStart& start, const std::stop_token& stop) {
  // The first collective may wait for the slowest start; later ones are watched by the Coordinator, which is told of progress.
  const std::chrono::seconds patience{std::max({config_.comm.init_timeout_seconds, config_.comm.train_timeout_seconds, longest_live_timeout_seconds})};
  const TrainingOptions& mesh = job_.options;
  const auto among = [&](const std::string& name, auto&& belongs) {
    EpochStart part = start;
    std::erase_if(part.members, [&](Rank member) {
      return !belongs(static_cast<std::uint32_t>(std::ranges::find(start.members, member) - start.members.begin()));  // its place in the mesh
    });
    if (part.members.size() < start.members.size()) part.respawns = 0;  // of all members together
    return communicator_of(*device_, name, options_.communicators->make(part, name, patience, stop));
  };
  world_ = among("world", [](std::uint32_t) { return true; });  // first: it waits until all members are known in the lives they have now
  dp_shard_ = among("dp_shard-" + std::to_string(mesh.replica), [&](std::uint32_t member) { return member / mesh.world == mesh.replica; });
  if (mesh.replicas > 1)
    dp_replicate_ = among("dp_replicate-" + std::to_string(mesh.rank), [&](std::uint32_t member) { return member % mesh.world == mesh.rank; });
}

RankParts TrainingRankBody::parts() {
  RankParts parts;
  parts.runtime = options_.runtime;
  parts.directory = options_.directory;
  parts.system = &options_.system->caf();
  parts.rank = start_.rank;
  parts.epoch = start_.epoch;
  parts.first_step = start_.first_step;
  parts.plans = std::make_shared<const PlanSet>(job_.plans);
  parts.slots = job_.slots;
  parts.batch = largest_batch(job_.options);
  parts.units = model_->units();
  parts.device = device_.get();
  LaneObserver* const observer = options_.tracer != nullptr ? &options_.tracer->lanes_of(start_.rank) : nullptr;
  for (std::size_t i = 0; i < lane_count; ++i) {
    const auto kind = static_cast<LaneKind>(i);
    parts.lanes[i] = make_faulty_lane(device_->open_lane(kind, start_.rank, options_.runtime->clock, observer), kind, start_.rank, faults_, *options_.runtime);
  }
  parts.loader = loader_;
  parts.compute = {std::shared_ptr<void>{}, &model_->compute()};
  parts.shard = {std::shared_ptr<void>{}, &model_->shards()};
  parts.snapshot = snapshot_;
  parts.observer = profiler_;
  parts.keep = keep_;
  parts.dp_shard = dp_shard_;
  parts.dp_replicate = dp_replicate_;
  parts.world = world_;
  parts.checkpoint_folder = [this](Step step) { return checkpoints_.writing_folder(step, start_.epoch); };
  return parts;
}

}  // namespace

TrainingRankFactory::TrainingRankFactory(TrainingRankOptions options) : options_(std::move(options)) {
  const auto seed = static_cast<std::uint64_t>(options_.config.debug.seed);
  std::shared_ptr<FaultLedger> ledger;
  if (options_.memory != nullptr) ledger = std::make_shared<FaultLedger>(options_.memory->notes());
  faults_ = std::make_shared<FaultPlan>(std::move(ledger), options_.rank, seed, take(rules_of(options_.config.faults)));
  if (options_.letter_faults != nullptr)
    options_.letter_faults->use(options_.rank, faults_,
                                [runtime = options_.runtime, rank = options_.rank](const std::string& what) { tell_fault(*runtime, rank, what); });
}

void TrainingRankFactory::fault_rules(const std::vector<std::string>& rules) {
  for (; sent_rules_ < rules.size(); ++sent_rules_)
    if (auto rule = parse_fault_rule(rules[sent_rules_])) faults_->add(std::move(rule.value()));  // the launcher has checked it
}

std::unique_ptr<RankBody> TrainingRankFactory::build(const EpochStart& start) {
  std::stop_token stop;
  {
    const std::lock_guard lock(mutex_);
    if (cancelled_ >= start.epoch) throw std::runtime_error("the epoch ended before it began");
    stop_ = std::stop_source();
    stop = stop_.get_token();
    building_ = start.epoch;
  }
  return std::make_unique<TrainingRankBody>(options_, start, faults_, stop);
}

void TrainingRankFactory::cancel(EpochId epoch, const std::string&) noexcept {
  std::stop_source running;
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = std::max(cancelled_, epoch);
    if (building_ <= epoch) running = stop_;
  }
  running.request_stop();
}

}  // namespace troupe
