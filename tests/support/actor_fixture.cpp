#include "tests/support/actor_fixture.hpp"

#include <caf/actor_system.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <caf/send.hpp>
#include <stdexcept>

#include "src/runtime/describe.hpp"

namespace troupe {
namespace {

std::string at(Unit unit) { return " L" + std::to_string(unit.value()); }

class FakeLoader final : public LoaderProgram {
 public:
  explicit FakeLoader(ProgramLog& log) : log_(log) {}
  BatchFacts load(Stream&, Step step, Micro micro, std::span<std::byte>) override {
    log_.note("load m" + std::to_string(micro.value()));
    return {10, step.value() * 100 + micro.value()};
  }

 private:
  ProgramLog& log_;
};

class FakeCompute final : public ComputeProgram {
 public:
  explicit FakeCompute(ProgramLog& log) : log_(log) {}
  void forward(Stream&, Step, Micro, Unit unit, std::span<const std::byte>, std::span<const std::byte>) override { log_.note("forward" + at(unit)); }
  void backward(Stream&, Step, Micro, Unit unit, std::span<const std::byte>, std::span<const std::byte>, std::span<std::byte>) override {
    log_.note("backward" + at(unit));
  }

 private:
  ProgramLog& log_;
};

class FakeShard final : public ShardProgram {
 public:
  explicit FakeShard(ProgramLog& log) : log_(log) {}
  [[nodiscard]] std::size_t weights_bytes(Unit) const override { return 128; }
  [[nodiscard]] std::size_t gradients_bytes(Unit) const override { return 256; }
  void scales(Stream&, Unit unit, Communicator&) override { log_.note("scales" + at(unit)); }
  void gather(Stream&, Unit unit, std::span<std::byte>, Communicator&) override { log_.note("gather" + at(unit)); }
  void reduce(Stream&, Micro, Unit unit, std::span<std::byte>, Communicator&) override { log_.note("reduce" + at(unit)); }
  void accumulate(Stream&, Micro, Unit unit, std::span<std::byte>) override { log_.note("accumulate" + at(unit)); }
  void all_reduce(Stream&, Unit unit, Communicator&) override { log_.note("all_reduce" + at(unit)); }
  void verdict(Stream&, EpochId, Step, Communicator&) override { log_.note("verdict"); }
  void optimize(Stream&, Step, Unit unit, double) override { log_.note("optimize" + at(unit)); }
  [[nodiscard]] StepNumbers numbers() const override {
    StepNumbers numbers;
    numbers.verdict.outcome = VerdictOutcome::commit;
    numbers.verdict.mean_loss = 2.5;
    numbers.verdict.tokens = 20;
    numbers.bytes_gathered = 7;
    return numbers;
  }

 private:
  ProgramLog& log_;
};

class FakeSnapshot final : public SnapshotProgram {
 public:
  explicit FakeSnapshot(ProgramLog& log) : log_(log) {}
  [[nodiscard]] std::size_t snapshot_bytes() const override { return 512; }
  void copy(Stream&, Step, std::span<std::byte>) override { log_.note("snapshot"); }
  SavedShard save(Step step, std::span<const std::byte>, const std::filesystem::path& folder) override {
    log_.note("save");
    return {(folder / "shard").string(), step.value(), 77};
  }

 private:
  ProgramLog& log_;
};

/// Nobody calls it: the fake programs do not.
class NoCommunicator final : public Communicator {
 public:
  [[nodiscard]] std::uint32_t rank() const noexcept override { return 0; }
  [[nodiscard]] std::uint32_t size() const noexcept override { return 1; }
  void all_gather(Stream&, std::span<const GatherPiece>) override {}
  void reduce_scatter(Stream&, std::span<const ReducePiece>) override {}
  void all_reduce(Stream&, TensorView, Reduction) override {}
  void broadcast(Stream&, std::span<std::byte>, std::uint32_t) override {}
  void all_to_all(Stream&, std::span<const std::byte>, std::span<std::byte>) override {}
  void abort(const std::string&) noexcept override {}
};

caf::scheduler::test_coordinator& scheduler_of(ActorSystem& system) { return dynamic_cast<caf::scheduler::test_coordinator&>(system.caf().scheduler()); }

}  // namespace

void ProgramLog::note(const std::string& call) {
  calls.push_back(call);
  if (call == failing) throw std::runtime_error("out of luck");
}

ActorFixture::ActorFixture() : system_(ActorSystem::Options{.testing = true}) {}

ActorFixture::~ActorFixture() {
  post.forget();
  actors_.reset();
  run();
  directory.clear();
  run();
}

PlanShape ActorFixture::two_units() {
  PlanShape shape;
  shape.units = {UnitShape{.gather_bytes = 100, .reduce_bytes = 200}, UnitShape{.gather_bytes = 100, .reduce_bytes = 200}};
  return shape;
}

RankParts ActorFixture::parts(const PlanShape& shape, const SlotCounts& slots, bool snapshots) {
  RankParts parts;
  parts.runtime = &runtime;
  parts.directory = &directory;
  parts.system = &system_.caf();
  parts.rank = rank;
  parts.epoch = epoch;
  parts.plans = std::make_shared<PlanSet>(compile_plans(shape, slots, snapshots).value());
  parts.slots = slots;
  parts.batch = {1, 8};
  parts.units = static_cast<std::uint32_t>(shape.units.size());
  parts.loader = std::make_shared<FakeLoader>(programs);
  parts.compute = std::make_shared<FakeCompute>(programs);
  parts.shard = std::make_shared<FakeShard>(programs);
  parts.snapshot = std::make_shared<FakeSnapshot>(programs);
  parts.dp_shard = parts.world = std::make_shared<NoCommunicator>();
  parts.checkpoint_folder = [](Step step) { return std::filesystem::path("checkpoint") / ("step-" + std::to_string(step.value())); };
  make_lanes(parts);
  return parts;
}

void ActorFixture::make_lanes(RankParts& parts) {
  for (std::size_t i = 0; i < lane_count; ++i) parts.lanes[i] = lanes_[i] = std::make_shared<FakeLane>();
}

void ActorFixture::spawn_all(RankParts given) {
  actors_ = std::make_unique<RankActors>(spawn_rank(std::move(given)));
  run();
}

void ActorFixture::spawn_alone(ActorKind kind, const RankParts& given) {
  spawn_all(given);
  for (const ActorKind other : RankActors::kinds) {
    if (other != kind) directory.remove({rank, other});
  }
}

void ActorFixture::run() {
  auto& scheduler = scheduler_of(system_);
  while (scheduler.has_job()) scheduler.run_once();
}

void ActorFixture::run_to_the_end() {
  constexpr std::array order{LaneKind::comm, LaneKind::disk, LaneKind::compute, LaneKind::optimizer, LaneKind::copy, LaneKind::storage};
  for (bool any = true; any;) {
    any = false;
    run();
    for (const LaneKind kind : order) {
      if (!lane(kind).busy()) continue;
      lane(kind).finish_one();
      run();
      any = true;
    }
  }
}

void ActorFixture::begin(ActorKind to, Step step, StepKind kind) {
  deliver<schema::StepBegin>(to, step, {}, [kind](auto body) {
    body.setKind(static_cast<schema::StepKind>(kind));
    body.setLearningRate(0.5);
  });
}

Lease ActorFixture::lease_of_the_test() {
  return Lease(SlotIndex{0}, memory_, [this] { ++home; });
}

OperationIndex ActorFixture::find(const PlanSet& plans, OperationKind kind, std::uint32_t unit, bool backward) const {
  return plans.train_and_snapshot.operations.empty() ? plans.train.find({kind, Unit{unit}, {}, backward}).value()
                                                     : plans.train_and_snapshot.find({kind, Unit{unit}, {}, backward}).value();
}

}  // namespace troupe
