#include "tests/support/virtual_world_cluster.hpp"

#include <algorithm>
#include <caf/actor_system.hpp>
#include <caf/send.hpp>

namespace troupe {

class VirtualCluster::Body final : public RankBody {
 public:
  Body(VirtualCluster& cluster, const EpochStart& start)
      : cluster_(cluster), rank_(start.rank), place_(start.place()), shared_(cluster.shared_of(start)), mesh_(*shared_.mesh), first_(start.first_step) {
    if (const std::string problem = cluster.cannot_build ? cluster.cannot_build(rank_.value(), start.changes) : ""; !problem.empty())
      throw std::runtime_error(problem);
    check_restore(start);
    SimulatedGround ground{cluster.world_, cluster.runtime_, shared_.knobs, shared_.plans, mesh_, nullptr, {}};
    ground.process = start.rank;
    if (cluster.alter_lane)
      ground.alter_lane = [&cluster, rank = start.rank.value()](LaneKind kind, LaneModel& model) { cluster.alter_lane(rank, kind, model); };
    ground.first = start.first_step;
    ground.memory = [&cluster, rank = start.rank.value()](EpochId epoch, Step step, std::uint32_t slot) { cluster.memory_[{rank, slot}] = {epoch, step}; };
    simulated_ = simulate_rank(ground, place_);
    simulated_.parts.epoch = start.epoch;
    simulated_.parts.first_step = start.first_step;
    if (cluster.alter_parts) cluster.alter_parts(start.rank.value(), simulated_.parts);
    cluster.world_.invariants().begin_epoch(start.rank, start.epoch, start.first_step, shared_.plans);
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
  [[nodiscard]] RankParts parts() override { return simulated_.parts; }
  [[nodiscard]] PlanHashes plan_hashes() const override {
    PlanHashes hashes;
    for (const CommunicatorKind kind : {CommunicatorKind::dp_shard, CommunicatorKind::dp_replicate, CommunicatorKind::world})
      hashes[kind] = shared_.plans->train.hash(kind);
    return hashes;
  }
  [[nodiscard]] std::uint64_t arena_bytes() const override { return 1; }
  [[nodiscard]] DeviceInfo device() const override {
    return {.id = {}, .name = "simulated", .peak_flops = 3e12 + rank_.value(), .peak_flops_fp8 = 6e12, .memory_bytes = 100 + rank_.value()};
  }
  void abort(const std::string& cause) noexcept override { mesh_.abort(cause); }
  void hand_over(EpochId epoch, Step step, std::uint32_t slot) override {
    // An epoch without a step of its own has no rank whose optimizer ran.
    if (step >= first_ && simulated_.programs->committed() != step)
      cluster_.world_.findings().add(Invariant::live_data,
                                     "rank " + std::to_string(rank_.value()) + " hands over another state than that of step " + std::to_string(step.value()));
    if (cluster_.cannot_hand_over && cluster_.cannot_hand_over(rank_.value())) throw std::runtime_error("no memory");
    cluster_.memory_[{rank_.value(), slot}] = {epoch, step};
  }
  void die() {
    for (const auto& lane : simulated_.lanes) lane->die();
    mesh_.lose(place_);
    cluster_.world_.slots().forget(rank_);
  }

 private:
  /// What the epoch is to begin from must be there, the part of every rank that ran then.
  void check_restore(const EpochStart& start) {
    if (start.restore.place != EpochOrigin::Place::memory) return;
    const auto& epochs = cluster_.result_.epochs;
    const auto then = std::ranges::find(epochs, start.restore.epoch, &BeginEpoch::epoch);
    if (then == epochs.end()) return cluster_.world_.findings().add(Invariant::live_data, "a snapshot of an epoch that never was");
    const std::pair state(start.restore, start.members);
    if (cluster_.spread_time && then->members != start.members && std::ranges::find(cluster_.spread_, state) == cluster_.spread_.end())
      cluster_.world_.findings().add(Invariant::live_data, "rank " + std::to_string(rank_.value()) + " is to begin from parts that its host does not hold");
    for (const Rank member : then->members) {
      const auto found = cluster_.memory_.find({member.value(), start.restore.slot});
      if (found != cluster_.memory_.end() && found->second.spoilt) throw RestorePointLost("its hash is wrong");
      if (found == cluster_.memory_.end() || found->second.epoch != start.restore.epoch || found->second.step != start.restore_step)
        cluster_.world_.findings().add(Invariant::live_data, "rank " + std::to_string(rank_.value()) + " is to begin after step " +
                                                                 std::to_string(start.restore_step.value()) + " from a snapshot of which the part of rank " +
                                                                 std::to_string(member.value()) + " is not there");
    }
  }

  VirtualCluster& cluster_;
  const Rank rank_;
  const std::uint32_t place_;
  Shared& shared_;
  SimulatedMesh& mesh_;
  const Step first_;
  SimulatedRank simulated_;
};

class VirtualCluster::Factory final : public RankFactory {
 public:
  explicit Factory(VirtualCluster& cluster) : cluster_(cluster) {}
  [[nodiscard]] std::unique_ptr<RankBody> build(const EpochStart& start) override { return std::make_unique<Body>(cluster_, start); }
  void cancel(EpochId, const std::string&) noexcept override {}

 private:
  VirtualCluster& cluster_;
};

class VirtualCluster::Events final : public JobEvents, public RankEvents {
 public:
  explicit Events(VirtualCluster& cluster) : cluster_(cluster), result_(cluster.result_) {}
  void joined(const JoinedRank&, std::uint32_t) override {}
  void epoch_begun(const BeginEpoch& epoch) override { result_.epochs.push_back(epoch); }
  void epoch_ready(EpochId, std::uint64_t) override {}
  void devices(const DevicePowers& of_each) override { result_.devices = of_each; }
  void step(const StepRecord& record) override {
    result_.steps.push_back(record);
    if (cluster_.on_step) cluster_.on_step(record);
    end_if_last(record.step);
  }
  void checkpoint(Step step, const std::string& problem) override {
    if (problem.empty())
      result_.sealed.push_back(step);
    else
      result_.not_sealed[step] = problem;
    end_if_last(step);
  }
  void stop_requested(const std::string&, Step) override {}
  void fault(const std::string& cause, Rank, bool first) override {
    if (first) result_.flow.fault = cause;
  }
  void recovering(EpochId ended, std::uint32_t) override {
    ++result_.recoveries;
    if (cluster_.on_recovering) cluster_.on_recovering(cluster_, ended);
  }
  void respawn(Rank, Incarnation) override { ++result_.respawns; }
  void change_settled(Step, const std::string& change, const std::string& problem) override {
    result_.settled.push_back(problem.empty() ? change : change + ": " + problem);
  }
  void epoch_ends(EpochId epoch, Step) override {
    if (cluster_.on_epoch_end) cluster_.on_epoch_end(cluster_, epoch);
  }
  void rank_let_go(Rank rank, std::uint32_t) override { result_.let_go.push_back(rank); }
  void recovered(EpochId, Step, Nanos) override {}
  void rolled_back(Step step, const EpochOrigin& to, const std::string&) override { result_.rollbacks.emplace_back(step, to); }
  void kept(Step step, EpochId) override {
    result_.kept.push_back(step);
    if (cluster_.on_kept) cluster_.on_kept(cluster_, step);
  }
  void finished(const JobEnd& end) override { result_.end = end; }
  void ended(Rank rank, const std::string&) override {
    ++result_.ended;
    cluster_.ended_.insert(rank.value());
  }
  void stuck(Rank rank, const std::string& cause) override {
    result_.stuck.push_back(cause);
    cluster_.ended_.insert(rank.value());
  }

 private:
  void end_if_last(Step step) {
    if (step == Step{cluster_.knobs_.steps} && cluster_.at_the_end) cluster_.at_the_end(cluster_);
  }
  VirtualCluster& cluster_;
  Result& result_;
};

VirtualCluster::VirtualCluster(const FlowKnobs& knobs)
    : knobs_(knobs),
      world_({.seed = knobs.seed, .letter_delay = knobs.letter_delay, .handler_delay = knobs.handler_delay}),
      log_(make_null_log()),
      runtime_{world_.clock(), *log_, world_.post_office()},
      events_(std::make_unique<Events>(*this)) {}

/// As the tools do: the rows of a step stay, so fewer ranks have more micro-batches.
FlowKnobs VirtualCluster::knobs_of(std::uint32_t ranks, const std::vector<std::string>& changes) const {
  FlowKnobs knobs = knobs_;
  knobs.rows = knobs.rows > 0 ? knobs.rows : std::uint64_t{knobs.ranks} * knobs.micro_batches;
  for (const std::string& change : changes) {
    const auto value = static_cast<std::uint32_t>(std::stoul(change.substr(change.find('=') + 1)));
    if (change.starts_with("replicas=")) knobs.replicas = value;
    if (change.starts_with("slots.weights=")) knobs.slots.weights = value;
    if (change.starts_with("rows=")) knobs.rows = value;
  }
  knobs.ranks = ranks;
  knobs.replicas = std::clamp(knobs.replicas, 1U, ranks);
  while (ranks % knobs.replicas != 0) --knobs.replicas;
  knobs.micro_batches = static_cast<std::uint32_t>((knobs.rows + ranks - 1) / ranks);
  if (knobs.weights_resident) knobs.slots.weights = std::max(knobs.slots.weights, knobs.layers);
  return knobs;
}

VirtualCluster::Shared& VirtualCluster::shared_of(const EpochStart& start) {
  auto& shared = shared_[start.epoch];
  if (!shared) {
    shared = std::make_unique<Shared>();
    shared->knobs = knobs_of(start.world(), start.changes);
    const auto alike = std::ranges::find_if(shared_, [&](const auto& entry) {
      return entry.second->plans && entry.second->knobs.ranks == shared->knobs.ranks && entry.second->knobs.replicas == shared->knobs.replicas &&
             entry.second->knobs.micro_batches == shared->knobs.micro_batches && entry.second->knobs.slots.weights == shared->knobs.slots.weights;
    });
    shared->plans = alike != shared_.end() ? alike->second->plans : compile(shared->knobs);
    shared->mesh = mesh_of(world_, shared->knobs);
  }
  return *shared;
}

EpochChanges VirtualCluster::epoch_changes() {
  EpochChanges changes;
  changes.next = [this](Step after) -> std::optional<Step> {
    const auto next = planned.upper_bound(after);
    return next == planned.end() ? std::nullopt : std::optional(next->first);
  };
  changes.changes = [this](Step first, std::uint32_t ranks) -> troupe::Result<std::vector<std::string>> {
    if (ranks > most_members) return Error{"too many ranks"};
    std::vector<std::string> all;
    for (const auto& [step, some] : planned)
      if (step <= first) all.insert(all.end(), some.begin(), some.end());
    return all;
  };
  changes.withdraw = [this](Step from) { planned.erase(from); };
  changes.most_ranks = 16;
  return changes;
}

void VirtualCluster::ask(ChangeRequest request) {
  request.new_epoch = !request.set.empty();
  request.ranks = result_.epochs.empty() ? knobs_.ranks : members();
  request.answer = [this](const troupe::Result<Agreed>& answer) { answers.push_back(answer); };
  requests_->add(std::move(request));
  tell<schema::ChangeRequested>(coordinator_address, [](auto) {});
}

VirtualCluster::~VirtualCluster() {
  world_.close();
  Directory& directory = world_.actors().directory();
  const auto end = [&](const ActorAddress& address) {
    if (const auto actor = directory.find(address)) caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
  };
  end(coordinator_address);
  for (const auto& [r, process] : processes_) {
    end({Rank{r}, ActorKind::supervisor});
    for (const ActorKind kind : RankActors::kinds) end({Rank{r}, kind});
  }
  world_.actors().end();
}

void VirtualCluster::spawn_coordinator() {
  storage_ = std::make_unique<SimulatedLane>(world_, launcher_rank, LaneKind::storage, LaneModel{.jitter = knobs_.jitter});
  CoordinatorOptions options;
  options.epoch = {
      .world_size = knobs_.ranks, .config_hash = 1, .init_timeout = std::chrono::seconds{60}, .restore_step = {}, .job = "simulated", .previous = {}};
  options.steps.last_step = Step{knobs_.steps};
  options.steps.run_ahead = knobs_.begun_ahead;
  options.steps.learning_rate = [](Step) { return 1e-3; };
  options.steps.snapshot_due = [k = knobs_](Step step) { return snapshots(kind_of(k, step)); };
  options.steps.evaluation_due = [k = knobs_](Step step) { return evaluates(kind_of(k, step)); };
  options.train_timeout = train_timeout;
  options.seal = [](const CheckpointParts&) {};
  options.give_up = [this](Step step, EpochId epoch) { result_.given_up.emplace_back(step, epoch); };
  options.storage = storage_.get();
  options.recovery.respawn = respawn;
  options.recovery.shrink = shrink;
  options.recovery.min_ranks = min_ranks;
  options.recovery.let_go = [this](Rank rank, bool dead) {
    if (dead) world_.clock().after(Nanos{0}, [this, rank] { kill(rank.value()); });
  };
  if (spread_time)
    options.recovery.spread = [this](const EpochOrigin& state, const std::vector<Rank>& members, std::uint32_t number) {
      ++result_.spreads;
      world_.clock().after(*spread_time, [this, state, members, number] {
        spread_.emplace_back(state, members);
        const Heading heading{coordinator_address, {launcher_rank, ActorKind::none}, Where{{}, {}, Micro{number}, {}}, {}, Nanos{0}, 0};
        send<schema::SnapshotKept>(runtime_, heading, [](auto body) { body.setOk(true); });
      });
    };
  options.recovery.forget_before = [this](EpochId before) {
    ++result_.forgotten;
    std::erase_if(memory_, [before](const auto& entry) { return entry.second.epoch < before; });
  };
  options.changes = epoch_changes();
  options.requests = requests_;
  options.change = [this](const std::vector<std::string>& changes, Step from) -> troupe::Result<void> {
    auto& those = planned[from];
    those.insert(those.end(), changes.begin(), changes.end());
    return {};
  };
  options.recovery.attempts = attempts;
  options.guard = [this](Step) { return guard; };
  options.rollback_steps = rollback_steps;
  options.set_aside = [this](Step after, Step until) { result_.set_aside.emplace_back(after, until); };
  options.recovery.keep_every = knobs_.keep_every;
  options.recovery.start_again = [this](Rank rank, Incarnation incarnation) { start_again(rank, incarnation); };
  world_.actors().directory().add(coordinator_address, world_.actors().system().caf().spawn<Coordinator>(ActorSeat{runtime_, coordinator_address, EpochId{0}},
                                                                                                         options, static_cast<JobEvents&>(*events_)));
}

void VirtualCluster::spawn_supervisor(std::uint32_t r) {
  Process& process = processes_[r];
  process.alive = true;
  ended_.erase(r);
  process.factory = std::make_unique<Factory>(*this);
  // A builder is not one of the rank's lanes: it stands beside them under a number that no rank has.
  process.builder = std::make_unique<SimulatedLane>(world_, Rank{1000 + r}, LaneKind::storage,
                                                    LaneModel{.jitter = knobs_.jitter, .cost = [this](const LaneOperation&) { return build_time; }});
  SupervisorOptions options;
  options.world_size = knobs_.ranks;
  options.config_hash = 1;
  options.host = "simulated";
  options.incarnation = process.incarnation;
  options.factory = process.factory.get();
  options.builder = process.builder.get();
  options.events = events_.get();
  const ActorAddress address{Rank{r}, ActorKind::supervisor};
  world_.actors().directory().add(address, world_.actors().system().caf().spawn<Supervisor>(ActorSeat{runtime_, address, EpochId{0}}, options));
  start_supervisor(runtime_, address.rank);
}

void VirtualCluster::kill(std::uint32_t r, Nanos notice) {
  Process& process = processes_[r];
  if (!process.alive) return;
  process.alive = false;
  world_.letters_under_way().kill(Rank{r});
  if (process.body != nullptr) std::exchange(process.body, nullptr)->die();
  process.builder->die();
  Directory& directory = world_.actors().directory();
  const auto end = [&](const ActorAddress& address) {
    if (const auto actor = directory.find(address)) caf::anon_send_exit(actor, caf::exit_reason::kill);
    directory.remove(address);
  };
  for (const ActorKind kind : RankActors::kinds) end({Rank{r}, kind});
  end({Rank{r}, ActorKind::supervisor});
  old_factories_.push_back(std::move(process.factory));
  old_builders_.push_back(std::move(process.builder));
  world_.clock().after(notice, [this, r, incarnation = process.incarnation] { report_death(r, incarnation); });
}

void VirtualCluster::report_death(std::uint32_t rank, Incarnation incarnation) {
  tell<schema::FaultReport>(coordinator_address, [&](auto body) {
    body.setRank(rank);
    body.setCause("killed by signal 9");
    body.setSignal(9);
    body.setIncarnation(incarnation.value());
  });
}

void VirtualCluster::start_again(Rank rank, Incarnation incarnation) {
  // As the launcher: on another thread than the Coordinator's handler, which this is called from.
  world_.clock().after(Nanos{0}, [this, rank, incarnation] {
    kill(rank.value());
    Process& process = processes_[rank.value()];
    process.incarnation = incarnation;
    world_.clock().after(start_time, [this, rank, incarnation] {
      Process& started = processes_[rank.value()];
      if (started.alive || started.incarnation != incarnation) return;
      world_.letters_under_way().revive(rank);
      spawn_supervisor(rank.value());
    });
  });
}

void VirtualCluster::spoil_memory(std::uint32_t rank) {
  for (auto& [place, kept] : memory_)
    if (place.first == rank) kept.spoilt = true;
}

bool VirtualCluster::finished() const {
  return result_.end && std::ranges::all_of(processes_, [this](const auto& entry) { return !entry.second.alive || ended_.contains(entry.first); });
}

VirtualCluster::Result VirtualCluster::run() {
  spawn_coordinator();
  const std::uint32_t started = knobs_.ranks - absent;
  for (std::uint32_t r = 0; r < started; ++r) spawn_supervisor(r);
  if (before_run) before_run(*this);
  FlowResult& flow = result_.flow;
  flow.end = world_.run([this] { return finished(); }, limit);
  if (flow.end.how == RunEnd::How::finished) {
    world_.slots().expect_all_home();
    const bool all_alive = result_.let_go.empty() && std::ranges::all_of(processes_, [](const auto& entry) { return entry.second.alive; });
    if (result_.end->ok && absent == 0 && all_alive) world_.invariants().expect_complete(result_.end->last_step);
  }
  flow.elapsed = world_.clock().now();
  flow.reported = world_.invariants().reported(Rank{0});
  flow.found = world_.findings().all();
  flow.findings = world_.findings().text();
  flow.order_hash = world_.trace().order();
  flow.timed_hash = world_.trace().timed();
  flow.letters = world_.letters();
  flow.accesses = world_.slots().accesses();
  return result_;
}

}  // namespace troupe
