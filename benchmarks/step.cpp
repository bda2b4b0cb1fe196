// benchmark step: the step driven by actors and lanes against the same operations called in a plain loop, one rank, interleaved
// bench_step CONFIG [--section.key value …]: the same of a configuration's step on its device, 5 steps in turn, 25 times
#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "actors/rank_actors.hpp"
#include "src/collectives/shared_memory_communicator.hpp"
#include "src/config/job_config.hpp"
#include "src/data/loader.hpp"
#include "src/device/device.hpp"
#include "src/model/plain_step.hpp"
#include "src/runtime/actor_system.hpp"
#include "src/runtime/directory.hpp"
#include "tools/launcher/training_job.hpp"
#include "tools/worker/cuda_plugin_loader.hpp"
#include "tools/worker/open_device.hpp"

namespace troupe {
namespace {

/// Rounds in which both take turns.
struct Turns {
  std::uint64_t rounds, steps;
};
constexpr Turns on_cpu{12, 10}, as_configured{25, 5};
constexpr double learning_rate = 1e-3;
constexpr const char* config_text = R"(
[model]
name = "llama3"
flavor = "quickstart"
converters = ["float8"]
[training]
local_batch_size = 2
seq_len = 256
steps = 1000
mixed_precision_param = "bfloat16"
dataset = "text"
dataset_path = ["/usr/share/games/fortunes/*", "!/usr/share/games/fortunes/*.dat", "!/usr/share/games/fortunes/*.u8"]
)";

template <class T>
T take(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(result.value());
}

/// What both sides have of their own: device, model from the same seed, data (put into slots where the device has them, or into the host's memory), a
/// communicator of one.
struct Side {
  Side(const Clock& clock, const JobConfig& config, const std::string& name, bool slots_on_device)
      : job(take(plan_training(config, 0, 1))),
        device(open_device(config, 0)),
        halt(device->allocate(sizeof(HaltWord), Placement::host)),
        model(job.model, job.options, *device, new(halt->bytes().data()) HaltWord(0)) {
    model.initialise(1);
    LoaderOptions batches = loader_options(config, 0, 1);
    if (slots_on_device && !device->host_visible()) batches.device = device.get();
    loader = make_loader(take(open_corpora(sources_of(config.data))), batches);
    SharedMemoryOptions options;
    options.tag = "bench-step-" + name;
    options.registry = &registry;
    meeting = make_shared_memory_communicator(options, clock);
    communicator = communicator_of(*device, "dp_shard", meeting);
  }
  TrainingJob job;
  std::unique_ptr<Device> device;
  std::unique_ptr<Buffer> halt;
  TrainingModel model;
  std::shared_ptr<LoaderProgram> loader;
  SharedMemoryRegistry registry;
  std::shared_ptr<Communicator> meeting, communicator;
};

/// Delivers, and counts the StepReports that come to the rank's Supervisor: this benchmark stands in its place.
class ReportCounter final : public PostOffice {
 public:
  explicit ReportCounter(Directory& directory) : directory_(directory) {}
  void post(std::shared_ptr<const Parcel> parcel) override {
    const auto envelope = parcel->envelope();
    if (static_cast<ActorKind>(envelope.getTo().getActor()) != ActorKind::supervisor) return directory_.post(std::move(parcel));
    const std::lock_guard lock(mutex_);
    switch (envelope.getBody().which()) {
      case schema::Envelope::Body::STEP_REPORT:
        loss_ = envelope.getBody().getStepReport().getLoss();
        ++reports_;
        break;
      case schema::Envelope::Body::STOPPED: ++stopped_; break;
      case schema::Envelope::Body::FAULT_REPORT: fault_ = envelope.getBody().getFaultReport().getCause().cStr(); break;
      default: return;
    }
    changed_.notify_all();
  }
  void wait_for_reports(std::uint64_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return reports_ >= count || !fault_.empty(); });
    if (!fault_.empty()) throw std::runtime_error(fault_);
  }
  void wait_for_stops(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stopped_ >= count || !fault_.empty(); });
  }
  [[nodiscard]] double loss() const noexcept { return loss_; }

 private:
  Directory& directory_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t reports_ = 0;
  std::size_t stopped_ = 0;
  double loss_ = 0;
  std::string fault_;
};

/// The rank's five actors; two steps are begun ahead, as the Coordinator's horizon allows.
class ActorSide {
 public:
  ActorSide(Clock& clock, Log& log, const JobConfig& config) : side_(clock, config, "actors", true), post_(directory_), runtime_{clock, log, post_, nullptr} {
    RankParts parts;
    parts.runtime = &runtime_;
    parts.directory = &directory_;
    parts.system = &system_.caf();
    parts.plans = std::make_shared<const PlanSet>(side_.job.plans);
    parts.slots = side_.job.slots;
    parts.batch = side_.job.options.batch;
    parts.units = side_.model.units();
    parts.device = side_.device.get();
    parts.loader = side_.loader;
    parts.compute = {std::shared_ptr<void>{}, &side_.model.compute()};
    parts.shard = {std::shared_ptr<void>{}, &side_.model.shards()};
    parts.dp_shard = parts.world = side_.communicator;
    actors_ = std::make_unique<RankActors>(spawn_rank(std::move(parts)));
  }
  ~ActorSide() {
    actors_->drain_all();
    post_.wait_for_stops(RankActors::kinds.size());
    actors_->quit_and_join();
    actors_.reset();
    directory_.clear();
  }
  ActorSide(const ActorSide&) = delete;
  ActorSide& operator=(const ActorSide&) = delete;

  void run(std::uint64_t steps) {
    const std::uint64_t end = finished_ + steps;
    while (finished_ < end) {
      while (begun_ < end && begun_ < finished_ + 2) actors_->begin_step(Step{++begun_}, StepKind::train, learning_rate, false);
      post_.wait_for_reports(++finished_);
    }
  }
  [[nodiscard]] double loss() const noexcept { return post_.loss(); }

 private:
  Side side_;
  Directory directory_;
  ReportCounter post_;
  Runtime runtime_;
  ActorSystem system_;
  std::unique_ptr<RankActors> actors_;
  std::uint64_t begun_ = 0, finished_ = 0;
};

class PlainSide {
 public:
  PlainSide(const Clock& clock, const JobConfig& config)
      : side_(clock, config, "plain", false),
        step_(side_.model, *side_.device, *side_.communicator,
              [this](Step step, Micro micro, std::span<std::byte> batch) { side_.loader->load(side_.device->setup_stream(), step, micro, batch); }) {}
  void run(std::uint64_t steps) {
    for (std::uint64_t i = 0; i < steps; ++i) loss_ = step_.run(EpochId{1}, Step{++finished_}, learning_rate).verdict.mean_loss;
  }
  [[nodiscard]] double loss() const noexcept { return loss_; }

 private:
  Side side_;
  PlainStep step_;
  std::uint64_t finished_ = 0;
  double loss_ = 0;
};

struct Spread {
  double low, median, high;
};
Spread spread(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values.front(), values[values.size() / 2], values.back()};
}

template <class Side>
double milliseconds_a_step(const Clock& clock, Side& side, std::uint64_t steps) {
  const Nanos start = clock.now();
  side.run(steps);
  return std::chrono::duration<double, std::milli>(clock.now() - start).count() / static_cast<double>(steps);
}

/// Both ways in turn; the threads of both are made inside, so that they take the caller's cores.
double compare(const char* cores, Clock& clock, Log& log, const JobConfig& config, const Turns& turns) {
  PlainSide plain(clock, config);
  ActorSide actors(clock, log, config);
  plain.run(turns.steps);
  actors.run(turns.steps);
  std::vector<double> plain_times, actor_times;
  for (std::uint64_t round = 0; round < turns.rounds; ++round) {
    plain_times.push_back(milliseconds_a_step(clock, plain, turns.steps));
    actor_times.push_back(milliseconds_a_step(clock, actors, turns.steps));
  }
  const Spread a = spread(actor_times), p = spread(plain_times);
  const bool repeats = config.debug.deterministic.value_or(config.runtime.device == "cpu");
  std::printf("%-10s plain loop %7.2f ms a step (%.2f to %.2f), actors %7.2f ms (%.2f to %.2f), actors / plain %.3f; losses %s\n", cores, p.median, p.low,
              p.high, a.median, a.low, a.high, a.median / p.median,
              plain.loss() == actors.loss() ? "equal bit for bit"
              : repeats                     ? "DIFFER"
                                            : "apart in their last bits");
  if (repeats && plain.loss() != actors.loss()) throw std::runtime_error("the two ways trained differently");
  return a.median / p.median;
}

int run() {
  const std::unique_ptr<Clock> clock = make_system_clock();
  const std::unique_ptr<Log> log = make_null_log();
  const JobConfig config = take(JobConfig::parse(config_text, "benchmarks/step.cpp"));
  std::printf("one rank, one compute thread, Llama layout of 3.3 M parameters, 2 x 256 tokens a step, bf16 with FP8 linears\n");
  const double free_cores = compare("all cores", *clock, *log, config, on_cpu);
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(0, &one);
  if (sched_setaffinity(0, sizeof one, &one) != 0) throw std::runtime_error("this process may not be bound to one core");
  const double one_core = compare("one core", *clock, *log, config, on_cpu);
  std::printf("bar: at most 1.03 on all cores\n{\"benchmark\":\"step\",\"ratio_all_cores\":%.4f,\"ratio_one_core\":%.4f}\n", free_cores, one_core);
  return free_cores <= 1.03 ? 0 : 1;
}

int run(const std::string& file, const std::vector<std::string>& overrides) {
  std::ifstream text(file);
  if (!text) throw std::runtime_error("cannot read " + file);
  const JobConfig config = take(JobConfig::parse(std::string(std::istreambuf_iterator<char>(text), {}), file, overrides));
  if (config.runtime.device != "cpu") (void)take(cuda_plugin());  // before torch is asked anything
  const std::unique_ptr<Clock> clock = make_system_clock();
  const std::unique_ptr<Log> log = make_null_log();
  const double ratio = compare("as given", *clock, *log, config, as_configured);
  std::printf("bar: at most 1.01\n{\"benchmark\":\"step\",\"device\":\"%s\",\"ratio\":%.4f}\n", config.runtime.device.c_str(), ratio);
  return ratio <= 1.01 ? 0 : 1;
}

}  // namespace
}  // namespace troupe

int main(int count, char** arguments) {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  try {
    if (count > 1) return troupe::run(arguments[1], {arguments + 2, arguments + count});
    return troupe::run();
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "bench_step: %s\n", problem.what());
    return 2;
  }
}
