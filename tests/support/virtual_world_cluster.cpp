#include "tests/support/virtual_world_cluster.hpp"

#include <algorithm>
#include <caf/actor_system.hpp>
#include <caf/send.hpp>

namespace troupe {

class VirtualCluster::Body final : public RankBody {
 public:
  Body(VirtualCluster& cluster, const EpochStart& start) : cluster_(cluster) {
    SimulatedGround ground{cluster.world_, cluster.runtime_, cluster.knobs_, cluster.plans_, *cluster.mesh_, nullptr, {}};
    if (cluster.alter_lane)
      ground.alter_lane = [&cluster, rank = start.rank.value()](LaneKind kind, LaneModel& model) { cluster.alter_lane(rank, kind, model); };
    simulated_ = simulate_rank(ground, start.rank.value());
    simulated_.parts.epoch = start.epoch;
    simulated_.parts.first_step = start.first_step;
    if (cluster.alter_parts) cluster.alter_parts(start.rank.value(), simulated_.parts);
    cluster.world_.invariants().begin_epoch(start.rank, start.epoch, start.first_step, cluster.plans_);
  }
  [[nodiscard]] RankParts parts() override { return simulated_.parts; }
  [[nodiscard]] PlanHashes plan_hashes() const override {
    PlanHashes hashes;
    for (const CommunicatorKind kind : {CommunicatorKind::dp_shard, CommunicatorKind::dp_replicate, CommunicatorKind::world})
      hashes[kind] = cluster_.plans_->train.hash(kind);
    return hashes;
  }
  [[nodiscard]] std::uint64_t arena_bytes() const override { return 1; }
  void abort(const std::string& cause) noexcept override { cluster_.mesh_->abort(cause); }

 private:
  VirtualCluster& cluster_;
  SimulatedRank simulated_;
};

class VirtualCluster::Factory final : public RankFactory {
 public:
  explicit Factory(VirtualCluster& cluster) : cluster_(cluster) {}
  [[nodiscard]] std::unique_ptr<RankBody> build(const EpochStart& start) override { return std::make_unique<Body>(cluster_, start); }
  void cancel(const std::string&) noexcept override {}

 private:
  VirtualCluster& cluster_;
};

class VirtualCluster::Events final : public JobEvents, public RankEvents {
 public:
  explicit Events(VirtualCluster& cluster) : cluster_(cluster), result_(cluster.result_) {}
  void joined(const JoinedRank&, std::uint32_t) override {}
  void epoch_begun(const BeginEpoch&) override {}
  void epoch_ready(EpochId, std::uint64_t) override {}
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
  void finished(const JobEnd& end) override { result_.end = end; }
  void ended(Rank, const std::string&) override { ++result_.ended; }
  void stuck(Rank, const std::string& cause) override { result_.stuck.push_back(cause); }

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
      plans_(compile(knobs)),
      events_(std::make_unique<Events>(*this)) {
  mesh_ = std::make_unique<SimulatedMesh>(world_, knobs);
}

VirtualCluster::~VirtualCluster() {
  world_.close();
  Directory& directory = world_.actors().directory();
  const auto end = [&](const ActorAddress& address) {
    if (const auto actor = directory.find(address)) caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
  };
  end(coordinator_address);
  for (std::uint32_t r = 0; r < knobs_.ranks; ++r) {
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
  options.steps.snapshot_due = [k = knobs_](Step step) { return kind_of(k, step) == StepKind::train_and_snapshot; };
  options.train_timeout = train_timeout;
  options.seal = [](const CheckpointParts&) {};
  options.give_up = [this](Step step, EpochId epoch) { result_.given_up.emplace_back(step, epoch); };
  options.storage = storage_.get();
  world_.actors().directory().add(coordinator_address, world_.actors().system().caf().spawn<Coordinator>(ActorSeat{runtime_, coordinator_address, EpochId{0}},
                                                                                                         options, static_cast<JobEvents&>(*events_)));
}

void VirtualCluster::spawn_supervisor(std::uint32_t r) {
  factories_.push_back(std::make_unique<Factory>(*this));
  // A builder is not one of the rank's lanes: it stands beside them under a number that no rank has.
  builders_.push_back(std::make_unique<SimulatedLane>(world_, Rank{1000 + r}, LaneKind::storage,
                                                      LaneModel{.jitter = knobs_.jitter, .cost = [this](const LaneOperation&) { return build_time; }}));
  SupervisorOptions options;
  options.world_size = knobs_.ranks;
  options.config_hash = 1;
  options.host = "simulated";
  options.factory = factories_.back().get();
  options.builder = builders_.back().get();
  options.events = events_.get();
  const ActorAddress address{Rank{r}, ActorKind::supervisor};
  world_.actors().directory().add(address, world_.actors().system().caf().spawn<Supervisor>(ActorSeat{runtime_, address, EpochId{0}}, options));
  start_supervisor(runtime_, address.rank);
}

VirtualCluster::Result VirtualCluster::run() {
  spawn_coordinator();
  const std::uint32_t started = knobs_.ranks - absent;
  for (std::uint32_t r = 0; r < started; ++r) spawn_supervisor(r);
  if (before_run) before_run(*this);
  FlowResult& flow = result_.flow;
  flow.end = world_.run([this, started] { return result_.end && result_.ended + result_.stuck.size() >= started; }, limit);
  if (flow.end.how == RunEnd::How::finished) {
    world_.slots().expect_all_home();
    if (result_.end->ok && absent == 0) world_.invariants().expect_complete(result_.end->last_step);
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
