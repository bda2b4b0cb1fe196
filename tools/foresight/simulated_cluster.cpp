#include "tools/foresight/simulated_cluster.hpp"

#include <algorithm>
#include <set>

#include "src/runtime/send.hpp"
#include "src/runtime/spawned_actor.hpp"
#include "src/simulation/end_actor.hpp"
#include "src/simulation/simulated_mesh.hpp"
#include "src/trace/ring_tracer.hpp"

namespace troupe {
namespace {

/// Keeps rank 0's operations, and passes those of traced ranks on.
class SpanKeeper final : public LaneObserver {
 public:
  SpanKeeper(Rank rank, std::vector<TracedSpan>* spans, LaneObserver* next) : rank_(rank), spans_(spans), next_(next) {}
  void finished(LaneKind lane, const LaneOperation& operation, Nanos posted, Nanos started, Nanos ended, const Outcome& outcome) override {
    if (spans_ != nullptr) spans_->push_back({rank_, name_of(lane), operation.name, operation.where.step, started, ended});
    if (next_ != nullptr) next_->finished(lane, operation, posted, started, ended, outcome);
  }

 private:
  const Rank rank_;
  std::vector<TracedSpan>* const spans_;
  LaneObserver* const next_;
};

class Cluster {
 public:
  explicit Cluster(const SimulatedJobOptions& options);
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;
  SimulatedOutcome run();

 private:
  class Body;
  class Factory;
  class Events;
  struct Process {
    bool alive = false;
    Incarnation incarnation;
    std::unique_ptr<Factory> factory;
    std::unique_ptr<SimulatedLane> builder;
    Body* body = nullptr;
  };

  [[nodiscard]] std::uint32_t ranks() const noexcept { return options_.shards * options_.replicas; }
  /// Of an epoch that begins with this step.
  [[nodiscard]] const SimulatedLayout& layout_at(Step first) const {
    const auto later = options_.changes.upper_bound(first);
    return later == options_.changes.begin() ? options_ : std::prev(later)->second;
  }
  /// What lanes of this kind share with others: the host's cores, or the rank's device, on which kernels of compute and of the optimizer take turns.
  [[nodiscard]] CorePool* shared_by(LaneKind kind, std::uint32_t rank) {
    if (!cores_.empty()) return kind == LaneKind::storage ? nullptr : cores_.at(rank / options_.ranks_per_host).get();
    return kind == LaneKind::compute || kind == LaneKind::optimizer ? devices_.at(rank).get() : nullptr;
  }
  [[nodiscard]] StepKind kind_of(Step step) const {
    return options_.snapshot_due && options_.snapshot_due(step) ? StepKind::train_and_snapshot : StepKind::train;
  }
  void spawn_coordinator();
  void spawn_supervisor(std::uint32_t rank);
  void end_actors(std::uint32_t rank, bool at_once);
  void kill(Rank rank, Nanos notice);
  void start_again(Rank rank, Incarnation incarnation);
  void report_death(Rank rank, Incarnation incarnation);
  SimulatedMesh& mesh_of(EpochId epoch, const SimulatedLayout& layout);
  [[nodiscard]] EpochChanges epoch_changes() const;
  [[nodiscard]] Nanos builder_cost(const LaneOperation& operation) const;
  [[nodiscard]] bool finished() const;

  const SimulatedJobOptions& options_;
  SimulatedOutcome outcome_;
  VirtualWorld world_;
  std::unique_ptr<Log> log_ = make_null_log();
  Runtime runtime_;
  std::vector<std::unique_ptr<CorePool>> cores_;    ///< [host], of CPUs
  std::vector<std::unique_ptr<CorePool>> devices_;  ///< [rank], where each has a device
  std::vector<std::unique_ptr<SpanKeeper>> observers_;
  std::map<EpochId, std::unique_ptr<SimulatedMesh>> meshes_;
  std::unique_ptr<Events> events_;
  std::vector<Process> processes_;
  std::vector<std::unique_ptr<Factory>> old_factories_;  ///< of processes that are gone: their actors may still be ending
  std::vector<std::unique_ptr<SimulatedLane>> old_builders_;
  std::unique_ptr<SimulatedLane> storage_;
  EpochOrigin::Place begins_from_{};  ///< the newest epoch
  std::uint32_t ended_ = 0;
};

/// What one rank stands on in one epoch.
class Cluster::Body final : public RankBody {
 public:
  Body(Cluster& cluster, const EpochStart& start)
      : cluster_(cluster), rank_(start.rank), layout_(cluster.layout_at(start.first_step)), mesh_(cluster.mesh_of(start.epoch, layout_)) {
    const SimulatedJobOptions& o = cluster.options_;
    StampedModel model{.ranks = cluster.ranks(),
                       .units = layout_.units,
                       .micro_batches = layout_.micro_batches,
                       .replicas = layout_.replicas,
                       .reduce_last = layout_.reduce_last,
                       .step_in_backward = layout_.step_in_backward,
                       .seed = 1,
                       .after_a_failure = [&world = cluster.world_] { return !world.invariants().first_failure().empty(); },
                       .overflows = {}};
    programs_ = std::make_unique<StampedRank>(model, rank_.value(), cluster.world_.findings(), start.first_step);
    if (o.one_order) {  // the optimizer's operations are issued behind the verdict and start one after the other, while what follows is issued
      order_ = std::make_unique<DeviceOrder>([this](Step step) -> const Plan& { return layout_.plans->of(cluster_.kind_of(step)); },
                                             std::set<LaneKind>{LaneKind::compute, LaneKind::comm}, start.first_step);
    }
    make_parts(start);
    for (std::size_t i = 0; i < lane_count; ++i) parts_.lanes[i] = open_lane(static_cast<LaneKind>(i));
    if (o.alter_parts) o.alter_parts(rank_, parts_);
    cluster.world_.invariants().begin_epoch(rank_, start.epoch, start.first_step, layout_.plans);
    cluster.processes_[rank_.value()].body = this;
  }
  ~Body() override {
    Process& process = cluster_.processes_[rank_.value()];
    if (process.body != this) return;  // of a process that was killed
    process.body = nullptr;
    cluster_.world_.slots().expect_all_home(rank_);
    cluster_.world_.slots().forget(rank_);
  }
  Body(const Body&) = delete;
  Body& operator=(const Body&) = delete;
  [[nodiscard]] RankParts parts() override { return parts_; }
  [[nodiscard]] PlanHashes plan_hashes() const override {
    PlanHashes hashes;
    for (const CommunicatorKind kind : {CommunicatorKind::dp_shard, CommunicatorKind::dp_replicate, CommunicatorKind::world})
      hashes[kind] = layout_.plans->train.hash(kind);
    return hashes;
  }
  [[nodiscard]] std::uint64_t arena_bytes() const override { return 1; }
  void abort(const std::string& cause) noexcept override { mesh_.abort(cause); }
  void hand_over(EpochId, Step, std::uint32_t) override {}  // stamps need no state: those of the next epoch say which step they follow
  void die() {
    for (const auto& lane : lanes_) lane->die();
    mesh_.lose(rank_.value());
    cluster_.world_.slots().forget(rank_);
  }

 private:
  void make_parts(const EpochStart& start) {
    parts_.runtime = &cluster_.runtime_;
    parts_.directory = &cluster_.world_.actors().directory();
    parts_.system = &cluster_.world_.actors().system().caf();
    parts_.rank = rank_;
    parts_.epoch = start.epoch;
    parts_.first_step = start.first_step;
    parts_.plans = layout_.plans;
    parts_.slots = layout_.slots;
    parts_.batch = programs_->batch();
    parts_.units = layout_.units;
    parts_.loader = programs_->loader();
    parts_.compute = programs_->compute();
    parts_.shard = programs_->shard();
    parts_.snapshot = programs_->snapshot();
    const Fact keep{OperationKind::keep, {}, {}, false};
    if (layout_.plans->train.find(keep)) parts_.keep = programs_->keep([](EpochId, Step, std::uint32_t) {});
    parts_.dp_shard = mesh_.member(CommunicatorKind::dp_shard, rank_.value());
    if (layout_.replicas > 1) parts_.dp_replicate = mesh_.member(CommunicatorKind::dp_replicate, rank_.value());
    parts_.world = mesh_.member(CommunicatorKind::world, rank_.value());
    parts_.checkpoint_folder = [](Step step) { return std::filesystem::path("step-" + std::to_string(step.value())); };
  }

  std::shared_ptr<SimulatedLane> open_lane(LaneKind kind) {
    LaneModel model;
    model.collectives = kind == LaneKind::comm;
    model.letter = cluster_.options_.letter;
    model.cores = cluster_.shared_by(kind, rank_.value());
    model.order = kind == LaneKind::compute || kind == LaneKind::comm ? order_.get() : nullptr;
    model.cost = [this, kind](const LaneOperation& operation) { return cost_of(kind, operation); };
    auto lane = std::make_shared<SimulatedLane>(cluster_.world_, rank_, kind, std::move(model), cluster_.observers_[rank_.value()].get());
    lanes_.push_back(lane);
    cluster_.world_.on_report([weak = std::weak_ptr(lane), rank = rank_, kind]() -> std::string {
      const auto there = weak.lock();
      const LaneProgress progress = there ? there->progress() : LaneProgress{};
      return progress.oldest_pending.empty()
                 ? ""
                 : std::string(name_of(kind)) + " lane of rank " + std::to_string(rank.value()) + ": pending " + progress.oldest_pending;
    });
    return lane;
  }

  /// By the operation's place in its step's plan.
  [[nodiscard]] Nanos cost_of(LaneKind kind, const LaneOperation& operation) const {
    const Plan& plan = layout_.plans->of(cluster_.kind_of(operation.where.step));
    if (operation.index.value() >= plan.operations.size()) return operation.cost;
    const Nanos cost = layout_.cost(plan[operation.index]);
    const bool beside = kind == LaneKind::compute && !lanes_[static_cast<std::size_t>(LaneKind::comm)]->progress().oldest_pending.empty();
    return beside ? Nanos{static_cast<Nanos::rep>(static_cast<double>(cost.count()) * (1 + cluster_.options_.contention))} : cost;
  }

  Cluster& cluster_;
  const Rank rank_;
  const SimulatedLayout& layout_;
  SimulatedMesh& mesh_;
  std::unique_ptr<StampedRank> programs_;
  std::unique_ptr<DeviceOrder> order_;
  std::vector<std::shared_ptr<SimulatedLane>> lanes_;  ///< by LaneKind
  RankParts parts_;
};

class Cluster::Factory final : public RankFactory {
 public:
  explicit Factory(Cluster& cluster) : cluster_(cluster) {}
  [[nodiscard]] std::unique_ptr<RankBody> build(const EpochStart& start) override { return std::make_unique<Body>(cluster_, start); }
  void cancel(EpochId, const std::string&) noexcept override {}

 private:
  Cluster& cluster_;
};

class Cluster::Events final : public JobEvents, public RankEvents {
 public:
  explicit Events(Cluster& cluster) : cluster_(cluster), outcome_(cluster.outcome_) {}
  void joined(const JoinedRank&, std::uint32_t) override {}
  void epoch_begun(const BeginEpoch& epoch) override {
    cluster_.begins_from_ = epoch.restore.place;
    if (!outcome_.recoveries.empty() && outcome_.recoveries.back().first_step == Nanos{0}) outcome_.recoveries.back().lost_from = epoch.first_step;
  }
  void epoch_ready(EpochId, std::uint64_t) override {}
  void step(const StepRecord& record) override {
    const Nanos now = cluster_.world_.clock().now();
    outcome_.steps.push_back({record.step, record.epoch, now});
    if (!outcome_.recoveries.empty() && outcome_.recoveries.back().first_step == Nanos{0}) {
      outcome_.recoveries.back().first_step = now;
      outcome_.recoveries.back().lost_to = record.step;
    }
  }
  void checkpoint(Step, const std::string&) override {}
  void stop_requested(const std::string&, Step) override {}
  void fault(const std::string&, Rank, bool) override {}
  void kept(Step step, EpochId) override { outcome_.kept.push_back(step); }
  void finished(const JobEnd& end) override { outcome_.job = end; }
  void ended(Rank, const std::string&) override { ++cluster_.ended_; }
  void stuck(Rank, const std::string&) override { ++cluster_.ended_; }

 private:
  Cluster& cluster_;
  SimulatedOutcome& outcome_;
};

Cluster::Cluster(const SimulatedJobOptions& options)
    : options_(options),
      world_(WorldOptions{}),
      runtime_{world_.clock(), *log_, world_.post_office(), options.tracer},
      events_(std::make_unique<Events>(*this)),
      processes_(ranks()) {
  for (std::uint32_t r = 0; r < ranks(); ++r) {
    LaneObserver* traced = nullptr;
    if (options.tracer != nullptr && r < options.traced_ranks) traced = &options.tracer->lanes_of(Rank{r});
    observers_.push_back(std::make_unique<SpanKeeper>(Rank{r}, r == 0 || options.keep_all_spans ? &outcome_.spans : nullptr, traced));
  }
  const std::uint32_t hosts = (ranks() + options.ranks_per_host - 1) / options.ranks_per_host;
  for (std::uint32_t host = 0; options.cores > 0 && host < hosts; ++host) cores_.push_back(std::make_unique<CorePool>(world_.clock(), options.cores));
  for (std::uint32_t r = 0; options.cores <= 0 && r < ranks(); ++r) devices_.push_back(std::make_unique<CorePool>(world_.clock(), 1));
}

Cluster::~Cluster() {
  world_.close();
  end_actor(world_.actors().directory(), coordinator_address, false);
  for (std::uint32_t r = 0; r < ranks(); ++r) end_actors(r, false);
  world_.actors().end();
}

SimulatedMesh& Cluster::mesh_of(EpochId epoch, const SimulatedLayout& layout) {
  auto& mesh = meshes_[epoch];
  if (!mesh) mesh = std::make_unique<SimulatedMesh>(world_, layout.shards, layout.replicas);
  return *mesh;
}

EpochChanges Cluster::epoch_changes() const {
  EpochChanges changes;
  changes.next = [this](Step after) -> std::optional<Step> {
    const auto next = options_.changes.upper_bound(after);
    return next == options_.changes.end() ? std::nullopt : std::optional(next->first);
  };
  changes.changes = [this](Step first, std::uint32_t) -> Result<std::vector<std::string>> {
    const auto passed = std::distance(options_.changes.begin(), options_.changes.upper_bound(first));
    return std::vector<std::string>(static_cast<std::size_t>(passed), "changed");
  };
  return changes;
}

Nanos Cluster::builder_cost(const LaneOperation& operation) const {
  if (operation.index == hand_over_operation) return options_.hand_over;
  return operation.index == build_operation && options_.build ? options_.build(begins_from_) : Nanos{0};
}

void Cluster::end_actors(std::uint32_t rank, bool at_once) {
  for (const ActorKind kind : RankActors::kinds) end_actor(world_.actors().directory(), {Rank{rank}, kind}, at_once);
  end_actor(world_.actors().directory(), {Rank{rank}, ActorKind::supervisor}, at_once);
}

void Cluster::spawn_coordinator() {
  storage_ = std::make_unique<SimulatedLane>(world_, launcher_rank, LaneKind::storage, LaneModel{});
  CoordinatorOptions options;
  options.epoch = {.world_size = ranks(), .config_hash = 1, .init_timeout = options_.limit, .restore_step = {}, .job = "simulated", .previous = {}};
  options.steps.last_step = options_.last;
  options.steps.run_ahead = options_.run_ahead;
  options.steps.learning_rate = [](Step) { return 1e-3; };
  options.steps.snapshot_due = [this](Step step) { return kind_of(step) == StepKind::train_and_snapshot; };
  options.steps.wait_for_saves = options_.wait_for_saves;
  // The world's limit comes first: its report says what every lane, group and actor waits for.
  options.train_timeout = options.heartbeat_timeout = options.stop_timeout = 2 * options_.limit;
  options.seal = [](const CheckpointParts&) {};
  options.give_up = [](Step, EpochId) {};
  options.storage = storage_.get();
  options.changes = epoch_changes();
  options.recovery.respawn = options_.respawn;
  options.recovery.keep_every = options_.keep_every;
  options.recovery.start_again = [this](Rank rank, Incarnation incarnation) { start_again(rank, incarnation); };
  const ActorSeat seat{runtime_, coordinator_address, EpochId{0}};
  world_.actors().directory().add(coordinator_address, spawn<Coordinator>(world_.actors().system(), seat, options, static_cast<JobEvents&>(*events_)).actor());
}

void Cluster::spawn_supervisor(std::uint32_t r) {
  Process& process = processes_[r];
  process.alive = true;
  process.factory = std::make_unique<Factory>(*this);
  // A builder is not one of the rank's lanes: it stands beside them under a number that no rank has.
  process.builder = std::make_unique<SimulatedLane>(world_, Rank{ranks() + 1000 + r}, LaneKind::storage,
                                                    LaneModel{.cost = [this](const LaneOperation& operation) { return builder_cost(operation); }});
  SupervisorOptions options;
  options.world_size = ranks();
  options.config_hash = 1;
  options.host = "simulated";
  options.incarnation = process.incarnation;
  options.heartbeat_every = std::chrono::seconds{10};
  options.factory = process.factory.get();
  options.builder = process.builder.get();
  options.events = events_.get();
  const ActorAddress address{Rank{r}, ActorKind::supervisor};
  world_.actors().directory().add(address, spawn<Supervisor>(world_.actors().system(), ActorSeat{runtime_, address, EpochId{0}}, options).actor());
  start_supervisor(runtime_, address.rank);
}

/// kill -9: the rank's process is gone, with its letters, lanes and actors; the launcher tells the Coordinator after `notice`.
void Cluster::kill(Rank rank, Nanos notice) {
  Process& process = processes_[rank.value()];
  if (!process.alive) return;
  process.alive = false;
  world_.letters_under_way().kill(rank);
  if (process.body != nullptr) std::exchange(process.body, nullptr)->die();
  process.builder->die();
  end_actors(rank.value(), true);
  old_factories_.push_back(std::move(process.factory));
  old_builders_.push_back(std::move(process.builder));
  world_.clock().after(notice, [this, rank, incarnation = process.incarnation] { report_death(rank, incarnation); });
}

void Cluster::report_death(Rank rank, Incarnation incarnation) {
  send<schema::FaultReport>(runtime_, Heading{coordinator_address, coordinator_address, {}, {}, Nanos{0}, 0}, [&](auto body) {
    body.setRank(rank.value());
    body.setCause("killed by signal 9");
    body.setSignal(9);
    body.setIncarnation(incarnation.value());
  });
}

void Cluster::start_again(Rank rank, Incarnation incarnation) {
  // As the launcher: on another thread than the Coordinator's handler, which this is called from.
  world_.clock().after(Nanos{0}, [this, rank, incarnation] {
    kill(rank, Nanos{0});
    processes_[rank.value()].incarnation = incarnation;
    world_.clock().after(options_.start_time, [this, rank, incarnation] {
      Process& started = processes_[rank.value()];
      if (started.alive || started.incarnation != incarnation) return;
      world_.letters_under_way().revive(rank);
      spawn_supervisor(rank.value());
    });
  });
}

bool Cluster::finished() const {
  return outcome_.job && ended_ + static_cast<std::uint32_t>(std::ranges::count_if(processes_, [](const Process& p) { return !p.alive; })) >= ranks();
}

SimulatedOutcome Cluster::run() {
  world_.on_report([this] { return meshes_.empty() ? "" : meshes_.rbegin()->second->waiting(); });
  spawn_coordinator();
  for (std::uint32_t r = 0; r < ranks(); ++r) spawn_supervisor(r);
  for (const auto& death : options_.deaths) {
    world_.clock().at(death.first, [this, rank = death.second] {
      outcome_.recoveries.push_back({.died = world_.clock().now(), .first_step = {}, .lost_from = {}, .lost_to = {}});
      kill(rank, options_.notice);
    });
  }
  outcome_.end = world_.run([this] { return finished(); }, options_.limit);
  if (outcome_.end.how == RunEnd::How::finished && outcome_.job->ok) world_.slots().expect_all_home();
  outcome_.findings = world_.findings().text();
  outcome_.letters = world_.letters();
  return std::move(outcome_);
}

}  // namespace

SimulatedOutcome simulate_job(const SimulatedJobOptions& options) { return Cluster(options).run(); }

}  // namespace troupe
