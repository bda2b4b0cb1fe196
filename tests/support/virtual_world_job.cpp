#include "tests/support/virtual_world_job.hpp"

#include <algorithm>
#include <caf/actor_system.hpp>
#include <caf/send.hpp>
#include <random>
#include <sstream>

#include "src/runtime/actor.hpp"
#include "src/trace/tracer.hpp"

namespace troupe {

/// Begins steps as the ones before are reported, drains after the last, ends the epoch on a fault.
class TestSupervisor final : public Actor<TestSupervisor> {
 public:
  TestSupervisor(caf::actor_config& config, const ActorSeat& seat, VirtualJob& job) : Actor(config, seat), job_(job) {}
  caf::behavior make_behavior() override {
    return {on(&TestSupervisor::start),   on(&TestSupervisor::report), on(&TestSupervisor::fault),
            on(&TestSupervisor::ordered), on(&TestSupervisor::ended),  on(&TestSupervisor::inspection)};
  }

 private:
  [[nodiscard]] std::uint32_t rank() const { return self().rank.value(); }
  void start(const Letter<schema::Horizon>&) { job_.begin_steps(rank(), Step{0}); }
  void report(const Letter<schema::StepReport>& letter) { job_.begin_steps(rank(), letter.where().step); }
  void fault(const Letter<schema::FaultReport>& letter) { job_.fault(rank(), letter.body().getCause().cStr()); }
  void ordered(const Letter<schema::EpochEnd>& letter) { job_.end_epoch(rank(), letter.body().getCause().cStr()); }
  void ended(const Letter<schema::Stopped>& letter) {
    job_.ranks_[rank()].stopped.insert(letter.from().actor);
    job_.ranks_[rank()].leases_out += letter.body().getLeasesOut();
  }
  void inspection(const Letter<schema::Inspection>&) {}

  VirtualJob& job_;
};

class VirtualJob::SpanRecorder final : public LaneObserver {
 public:
  SpanRecorder(std::vector<FlowSpan>& spans, Rank rank, const Runtime& runtime) : spans_(spans), rank_(rank), runtime_(runtime) {}
  void finished(LaneKind lane, const LaneOperation& operation, Nanos posted, Nanos started, Nanos ended, const Outcome&) override {
    spans_.push_back({rank_, lane, operation.name, operation.where, started, ended});
    if (runtime_.tracer != nullptr) runtime_.tracer->span({rank_, name_of(lane), operation.name, operation.where, posted, started, ended});
  }

 private:
  std::vector<FlowSpan>& spans_;
  const Rank rank_;
  const Runtime& runtime_;
};

namespace {

PlanShape shape_of(const FlowKnobs& k) {
  PlanShape shape;
  const std::uint32_t shards = k.ranks / k.replicas;
  UnitShape layer{.gather_bytes = std::uint64_t{shards} * 32, .reduce_bytes = std::uint64_t{shards} * 16, .all_reduce_bytes = 16};
  layer.forward = k.forward;
  layer.backward = k.backward;
  layer.gather = k.gather;
  layer.reduce = k.reduce;
  layer.accumulate = layer.all_reduce = k.reduce / 2;
  layer.optimize = k.optimize;
  layer.scales = k.verdict;
  layer.scales_bytes = k.fp8_scales ? 4 : 0;
  shape.units.assign(k.layers, layer);
  if (!k.plain_layers) {
    shape.units.front().backward_needs_weights = false;
    shape.units.back().keeps_weights_for_backward = true;
  }
  shape.micro_batches = k.micro_batches;
  shape.evaluation_batches = k.evaluate_every > 0 ? k.evaluation_batches : 0;
  shape.load = k.load;
  shape.verdict = k.verdict;
  shape.snapshot = k.snapshot;
  shape.save = k.save;
  shape.keep = k.keep;
  shape.keeps = k.keep_every > 0;
  shape.prefetch_before_reduce = k.prefetch_before_reduce;
  shape.replicas = k.replicas;
  shape.weights_resident = k.weights_resident;
  shape.reduce_last = k.reduce_last;
  shape.step_in_backward = k.step_in_backward;
  return shape;
}

}  // namespace

FlowKnobs draw_knobs(std::uint64_t seed, std::uint32_t ranks) {
  std::mt19937_64 random(seed * 0x9e3779b97f4a7c15U + ranks);
  const auto within = [&](std::uint64_t low, std::uint64_t high) { return low + random() % (high - low + 1); };
  const auto micros = [&](std::uint64_t low, std::uint64_t high) { return Nanos{static_cast<Nanos::rep>(within(low, high) * 1000)}; };
  FlowKnobs k;
  k.seed = seed;
  k.ranks = ranks;
  k.layers = static_cast<std::uint32_t>(within(2, 8));
  k.micro_batches = static_cast<std::uint32_t>(within(1, 3));
  k.steps = within(2, 3);
  k.snapshot_every = within(0, 3);
  k.begun_ahead = static_cast<std::uint32_t>(within(1, 2));
  const auto slots = [&] { return static_cast<std::uint32_t>(within(1, 4)); };
  k.slots = {slots(), slots(), slots(), static_cast<std::uint32_t>(within(1, 2))};
  k.forward = micros(0, 3000);
  k.backward = micros(0, 6000);
  k.gather = micros(0, 3000);
  k.reduce = micros(0, 3000);
  k.load = micros(0, 8000);
  k.verdict = micros(0, 100);
  k.optimize = micros(0, 1000);
  k.snapshot = micros(0, 20000);
  k.save = micros(0, 40000);
  k.jitter = within(0, 2) == 0 ? 0 : 0.5 * static_cast<double>(within(1, 4));
  k.fp8_scales = within(0, 1) == 1;
  k.work_at_start = within(0, 1) == 1;
  k.device_order = within(0, 2) == 0;
  k.prefetch_before_reduce = within(0, 3) != 0;
  k.plain_layers = within(0, 2) == 0;
  k.letter_delay = micros(0, 500);
  k.handler_delay = within(0, 1) == 0 ? Nanos{0} : micros(0, 1000);
  k.overflow_step = within(0, 4) == 0 ? within(1, k.steps) : 0;
  while (k.replicas < ranks && within(0, 2) == 0) k.replicas *= 2;
  k.reduce_last = within(0, 2) == 0;
  k.weights_resident = within(0, 3) == 0;
  if (k.weights_resident) k.slots.weights = std::max(k.slots.weights, k.layers);
  k.evaluate_every = within(0, 2);
  k.evaluation_batches = static_cast<std::uint32_t>(within(1, 3));
  k.step_in_backward = (k.reduce_last || k.micro_batches == 1) && within(0, 1) == 0;
  return k;
}

std::string describe(const FlowKnobs& k) {
  std::ostringstream text;
  text << "seed " << k.seed << ", ranks " << k.ranks << ", layers " << k.layers << (k.plain_layers ? " alike" : "") << ", micro-batches " << k.micro_batches
       << ", steps " << k.steps << " (" << k.begun_ahead << " ahead), snapshot every " << k.snapshot_every << ", " << k.evaluation_batches
       << " evaluated every " << k.evaluate_every << ", slots " << k.slots.batches << "/" << k.slots.weights << "/" << k.slots.gradients << "/"
       << k.slots.snapshots << (k.device_order ? ", one order per device" : "") << (k.replicas > 1 ? ", replicas " + std::to_string(k.replicas) : "")
       << (k.reduce_last ? ", reduce the last" : "") << (k.step_in_backward ? ", step in backward" : "") << (k.weights_resident ? ", weights stay" : "")
       << (k.work_at_start ? ", work at start" : "") << (k.fp8_scales ? ", fp8" : "") << (k.prefetch_before_reduce ? "" : ", reduce first") << ", jitter "
       << k.jitter;
  return text.str();
}

StepKind kind_of(const FlowKnobs& knobs, Step step) {
  const auto due = [step](std::uint64_t every) { return every > 0 && step.value() % every == 0; };
  return step_kind(due(knobs.snapshot_every), due(knobs.evaluate_every));
}

std::shared_ptr<const PlanSet> compile(const FlowKnobs& knobs) {
  auto compiled = compile_plans(shape_of(knobs), knobs.slots);
  if (!compiled) throw std::runtime_error(compiled.error().message);
  std::vector<Plan> steps{compiled->train, compiled->train_and_snapshot, compiled->train};
  if (knobs.evaluate_every > 0) steps.insert(steps.end(), {compiled->train_and_evaluate, compiled->train_snapshot_and_evaluate, compiled->train});
  if (auto checked = check_plans(std::vector(knobs.ranks, steps), knobs.slots, knobs.replicas); !checked) throw std::runtime_error(checked.error().message);
  return std::make_shared<const PlanSet>(std::move(*compiled));
}

namespace {

std::shared_ptr<SimulatedLane> simulate_lane(const SimulatedGround& on, Rank rank, LaneKind kind, DeviceOrder* order) {
  LaneModel model;
  model.jitter = on.knobs.jitter;
  model.work_at_start = on.knobs.work_at_start;
  model.collectives = kind == LaneKind::comm;
  model.order = kind != LaneKind::disk && kind != LaneKind::storage ? order : nullptr;
  if (on.alter_lane) on.alter_lane(kind, model);
  auto lane = std::make_shared<SimulatedLane>(on.world, rank, kind, std::move(model), on.observer);
  on.world.on_report([weak = std::weak_ptr(lane), rank, kind]() -> std::string {
    const auto there = weak.lock();
    const LaneProgress progress = there ? there->progress() : LaneProgress{};
    return progress.oldest_pending.empty()
               ? ""
               : std::string(name_of(kind)) + " lane of rank " + std::to_string(rank.value()) + ": pending " + progress.oldest_pending;
  });
  return lane;
}

}  // namespace

SimulatedRank simulate_rank(const SimulatedGround& on, std::uint32_t r) {
  const FlowKnobs& k = on.knobs;
  SimulatedRank rank;
  StampedModel model{.ranks = k.ranks,
                     .units = k.layers,
                     .micro_batches = k.micro_batches,
                     .evaluation_batches = k.evaluation_batches,
                     .replicas = k.replicas,
                     .reduce_last = k.reduce_last,
                     .step_in_backward = k.step_in_backward,
                     .seed = k.seed,
                     .rows = k.rows,
                     .after_a_failure = {},
                     .overflows = {}};
  model.after_a_failure = [&world = on.world] { return !world.invariants().first_failure().empty(); };
  model.overflows = [bad = k.overflow_step](Step step) { return step.value() == bad; };
  rank.programs = std::make_unique<StampedRank>(model, r, on.world.findings(), on.first);
  if (k.device_order) {
    rank.order = std::make_unique<DeviceOrder>([plans = on.plans, &k](Step step) -> const Plan& { return plans->of(kind_of(k, step)); },
                                               std::set<LaneKind>{LaneKind::compute, LaneKind::comm, LaneKind::optimizer, LaneKind::copy}, on.first);
  }
  RankParts& parts = rank.parts;
  parts.runtime = &on.runtime;
  parts.directory = &on.world.actors().directory();
  parts.system = &on.world.actors().system().caf();
  parts.rank = on.process.value_or(Rank{r});
  parts.plans = on.plans;
  parts.slots = k.slots;
  parts.batch = rank.programs->batch();
  parts.units = k.layers;
  for (std::size_t i = 0; i < lane_count; ++i) {
    rank.lanes.push_back(simulate_lane(on, parts.rank, static_cast<LaneKind>(i), rank.order.get()));
    parts.lanes[i] = rank.lanes.back();
  }
  parts.loader = rank.programs->loader();
  parts.compute = rank.programs->compute();
  parts.shard = rank.programs->shard();
  parts.snapshot = rank.programs->snapshot();
  if (k.keep_every > 0) parts.keep = rank.programs->keep(on.memory ? on.memory : [](EpochId, Step, std::uint32_t) {});
  parts.dp_shard = on.mesh.member(CommunicatorKind::dp_shard, r);
  if (k.replicas > 1) parts.dp_replicate = on.mesh.member(CommunicatorKind::dp_replicate, r);
  parts.world = on.mesh.member(CommunicatorKind::world, r);
  parts.checkpoint_folder = [](Step step) { return std::filesystem::path("step-" + std::to_string(step.value())); };
  return rank;
}

std::unique_ptr<SimulatedMesh> mesh_of(VirtualWorld& world, const FlowKnobs& knobs) {
  auto mesh = std::make_unique<SimulatedMesh>(world, knobs.ranks / knobs.replicas, knobs.replicas);
  world.on_report([of = mesh.get()] { return of->waiting(); });
  return mesh;
}

bool FlowResult::has(Invariant invariant) const {
  return std::any_of(found.begin(), found.end(), [&](const Finding& finding) { return finding.invariant == invariant; });
}

VirtualJob::VirtualJob(const FlowKnobs& knobs)
    : knobs_(knobs),
      world_({.seed = knobs.seed, .letter_delay = knobs.letter_delay, .handler_delay = knobs.handler_delay}),
      log_(make_null_log()),
      runtime_{world_.clock(), *log_, world_.post_office()} {}

VirtualJob::~VirtualJob() {
  world_.close();
  for (const Replacement& replacement : replacements_) end_actor(replacement.address);
  for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
    if (ranks_[r].actors) ranks_[r].actors->quit();
    end_actor({Rank{r}, ActorKind::supervisor});
  }
  world_.actors().end();
}

void VirtualJob::end_actor(const ActorAddress& address) {
  if (const auto actor = world_.actors().directory().find(address)) caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
}

void VirtualJob::replace(const ActorAddress& address, std::function<caf::actor(caf::actor_system&, const ActorAddress&)> spawn) {
  replacements_.push_back({address, std::move(spawn)});
}

void VirtualJob::wire(std::uint32_t r) {
  RankState& state = ranks_[r];
  observers_.push_back(std::make_unique<SpanRecorder>(spans_, Rank{r}, runtime_));
  SimulatedGround ground{world_, runtime_, knobs_, plans_, *mesh_, observers_.back().get(), {}};
  if (alter_lane) ground.alter_lane = [this, r](LaneKind kind, LaneModel& model) { alter_lane(*this, r, kind, model); };
  state.simulated = simulate_rank(ground, r);
  RankParts& parts = state.simulated.parts;
  if (alter_parts) alter_parts(*this, r, parts);
  world_.invariants().begin_epoch(Rank{r}, parts.epoch, parts.first_step, plans_);
  state.actors = std::make_unique<RankActors>(spawn_rank(std::move(parts)));
  const ActorAddress address{Rank{r}, ActorKind::supervisor};
  world_.actors().directory().add(address, world_.actors().system().caf().spawn<TestSupervisor>(ActorSeat{runtime_, address, EpochId{1}}, *this));
}

void VirtualJob::begin_steps(std::uint32_t r, Step reported) {
  RankState& state = ranks_[r];
  if (state.ending) return;
  const Step last{knobs_.steps};
  const Step until{std::min(reported.value() + knobs_.begun_ahead, knobs_.steps)};
  while (state.begun < until) {
    ++state.begun;
    state.actors->begin_step(state.begun, kind_of(knobs_, state.begun), 1e-3, state.begun == last);
  }
  if (reported != last) return;
  state.ending = true;
  state.actors->drain_all();
}

void VirtualJob::fault(std::uint32_t, const std::string& cause) {
  if (!fault_.empty()) return;
  fault_ = cause;
  for (std::uint32_t r = 0; r < knobs_.ranks; ++r) {
    send<schema::EpochEnd>(runtime_, Heading{{Rank{r}, ActorKind::supervisor}, coordinator_address, {EpochId{1}, {}, {}, {}}, {}, Nanos{0}, 0},
                           [&](auto body) { body.setCause(cause); });
  }
}

void VirtualJob::end_epoch(std::uint32_t r, const std::string& cause) {
  RankState& state = ranks_[r];
  state.ending = true;
  state.actors->halt(cause);
  mesh_->abort(cause);
  state.actors->end_epoch_all(cause);
}

bool VirtualJob::finished() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const RankState& rank) { return rank.stopped.size() == RankActors::kinds.size(); });
}

FlowResult VirtualJob::run() {
  FlowResult result;
  plans_ = compile(knobs_);
  mesh_ = mesh_of(world_, knobs_);
  ranks_.resize(knobs_.ranks);
  for (std::uint32_t r = 0; r < knobs_.ranks; ++r) wire(r);
  for (const Replacement& replacement : replacements_) {
    world_.actors().directory().add(replacement.address, replacement.spawn(world_.actors().system().caf(), replacement.address));
  }
  if (before_run) before_run(*this);
  for (std::uint32_t r = 0; r < knobs_.ranks; ++r) {
    send<schema::Horizon>(runtime_, Heading{{Rank{r}, ActorKind::supervisor}, coordinator_address, {EpochId{1}, {}, {}, {}}, {}, Nanos{0}, 0}, [](auto) {});
  }
  result.end = world_.run([this] { return finished(); }, limit);
  result.elapsed = world_.clock().now();
  result.compute_busy = ranks_[0].simulated.lanes[static_cast<std::size_t>(LaneKind::compute)]->busy();
  check(result);
  result.fault = fault_;
  result.reported = world_.invariants().reported(Rank{0});
  result.found = world_.findings().all();
  result.findings = world_.findings().text();
  result.order_hash = world_.trace().order();
  result.timed_hash = world_.trace().timed();
  result.letters = world_.letters();
  result.accesses = world_.slots().accesses();
  result.lane_operations = spans_.size();
  return result;
}

void VirtualJob::check(FlowResult& result) {
  const bool all_reported = std::all_of(ranks_.begin(), ranks_.end(), [](const RankState& rank) { return rank.ending; });
  if (all_reported && result.end.how != RunEnd::How::livelock) world_.slots().expect_all_home();
  if (result.end.how != RunEnd::How::finished) return;
  for (std::uint32_t r = 0; r < knobs_.ranks; ++r) {
    if (ranks_[r].leases_out > 0)
      world_.findings().add(Invariant::leases_home, "rank " + std::to_string(r) + " stopped with " + std::to_string(ranks_[r].leases_out) + " leases out");
  }
  if (fault_.empty()) world_.invariants().expect_complete(Step{knobs_.steps});
}

FlowResult run_twice(const FlowKnobs& knobs, const std::function<void(VirtualJob&)>& prepare) {
  const auto once = [&] {
    VirtualJob job(knobs);
    if (prepare) prepare(job);
    return job.run();
  };
  FlowResult first = once();
  const FlowResult second = once();
  if (first.timed_hash != second.timed_hash) {
    first.found.push_back({Invariant::repeatable_trace, "seed " + std::to_string(knobs.seed) + " gave two different runs"});
    first.findings += "repeatable trace: " + first.found.back().text + "\n";
  }
  return first;
}

}  // namespace troupe
