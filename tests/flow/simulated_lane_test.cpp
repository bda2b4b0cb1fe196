#include "src/simulation/simulated_lane.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

#include "src/simulation/virtual_world.hpp"

namespace troupe {
namespace {

using std::chrono::milliseconds;

struct Done {
  std::string name;
  Nanos at;
  Outcome outcome;
};

/// One lane in an empty world.
class SimulatedLaneTest : public ::testing::Test {
 protected:
  LaneOperation operation(const std::string& name, Nanos cost) {
    LaneOperation result;
    result.name = name;
    result.cost = cost;
    result.work = [this, name](Stream&) { worked += name + "@" + std::to_string(world.clock().now().count() / 1000000) + " "; };
    result.done = [this, name](const Outcome& outcome) { done.push_back({name, world.clock().now(), outcome}); };
    return result;
  }
  RunEnd run(std::size_t operations, Nanos limit = std::chrono::seconds{1}) {
    return world.run([this, operations] { return done.size() >= operations; }, limit);
  }

  VirtualWorld world{{}};
  std::string worked;
  std::vector<Done> done;
};

TEST_F(SimulatedLaneTest, OperationsTakeTheirCostOneAfterTheOtherAndWorkAtTheEnd) {
  SimulatedLane lane(world, Rank{0}, LaneKind::compute, {});
  lane.post(operation("a", milliseconds{3}));
  lane.post(operation("b", milliseconds{2}));
  EXPECT_EQ(worked, "") << "posting works nothing";
  EXPECT_EQ(run(2).how, RunEnd::How::finished);
  EXPECT_EQ(worked, "a@3 b@5 ");
  EXPECT_EQ(done[1].at, milliseconds{5});
  EXPECT_EQ(lane.busy(), milliseconds{5});
}

TEST_F(SimulatedLaneTest, WorksAtTheStartWhenTold) {
  SimulatedLane lane(world, Rank{0}, LaneKind::compute, {.work_at_start = true});
  lane.post(operation("a", milliseconds{3}));
  EXPECT_EQ(run(1).how, RunEnd::How::finished);
  EXPECT_EQ(worked, "a@0 ");
}

TEST_F(SimulatedLaneTest, AThrowIsTheOutcomeFailedWithItsText) {
  SimulatedLane lane(world, Rank{0}, LaneKind::compute, {});
  LaneOperation broken = operation("a", milliseconds{1});
  broken.work = [](Stream&) { throw std::runtime_error("out of ink"); };
  lane.post(std::move(broken));
  (void)run(1);
  EXPECT_EQ(done[0].outcome.kind, Outcome::Kind::failed);
  EXPECT_EQ(done[0].outcome.cause, "a: out of ink");
}

TEST_F(SimulatedLaneTest, AHaltEndsWhatIsRunningAtItsTimeAndTheRestAtOnce) {
  SimulatedLane lane(world, Rank{0}, LaneKind::compute, {});
  lane.post(operation("a", milliseconds{3}));
  lane.post(operation("b", milliseconds{2}));
  world.clock().after(milliseconds{1}, [&] { lane.halt("enough"); });
  (void)run(2);
  EXPECT_EQ(done[0].outcome.kind, Outcome::Kind::halted);
  EXPECT_EQ(done[1].at, milliseconds{3});
  EXPECT_EQ(done[1].outcome.cause, "enough");
  EXPECT_EQ(worked, "a@3 ");
  lane.post(operation("c", milliseconds{2}));
  (void)run(3);
  EXPECT_EQ(done[2].outcome.kind, Outcome::Kind::halted);
}

TEST_F(SimulatedLaneTest, FaultsFailStallAndHalt) {
  LaneModel model;
  model.fault = [](const LaneOperation& operation) -> LaneFault {
    if (operation.name == "fails") return {LaneFault::Kind::fail, {}, "broken bit"};
    if (operation.name == "stalls") return {LaneFault::Kind::stall, milliseconds{10}, {}};
    if (operation.name == "halts") return {LaneFault::Kind::halt, {}, "pulled plug"};
    return {};
  };
  SimulatedLane lane(world, Rank{0}, LaneKind::compute, std::move(model));
  for (const char* name : {"fails", "stalls", "halts", "after"}) lane.post(operation(name, milliseconds{1}));
  (void)run(4);
  EXPECT_EQ(done[0].outcome.cause, "fails: broken bit");
  EXPECT_EQ(done[1].at, milliseconds{12});
  EXPECT_EQ(done[2].outcome.kind, Outcome::Kind::halted);
  EXPECT_EQ(done[3].outcome.cause, "pulled plug");
  EXPECT_EQ(worked, "stalls@12 ");
}

TEST_F(SimulatedLaneTest, ARunThatCannotFinishIsAFindingThatNamesWhatIsPending) {
  SimulatedLane lane(world, Rank{0}, LaneKind::compute, {});
  world.on_report([&] { return "compute: " + lane.progress().oldest_pending; });
  lane.post(operation("endless", std::chrono::hours{1}));
  const RunEnd end = run(1, milliseconds{100});
  EXPECT_EQ(end.how, RunEnd::How::out_of_time);
  EXPECT_NE(end.report.find("compute: endless"), std::string::npos) << end.report;
  EXPECT_TRUE(world.findings().has(Invariant::progress));
}

TEST_F(SimulatedLaneTest, AFreedSlotIsPoisonedOnlyWhenItsLastLeaseEnds) {
  std::vector<std::byte> memory(4);
  SimulatedLane lane(world, Rank{0}, LaneKind::compute, {});
  LaneOperation writer = operation("writer", milliseconds{1});
  writer.leases = {Lease(SlotIndex{0}, memory, [&] { (void)world.slots().home(0, EdgeKind::weights, SlotIndex{0}); })};
  writer.accesses = {{name_of(EdgeKind::weights), 0, SlotIndex{0}, true}};
  writer.work = [&](Stream&) { memory[3] = std::byte{1}; };
  lane.post(std::move(writer));
  (void)run(1);
  EXPECT_EQ(memory[3], SlotLedger::poison);
}

TEST_F(SimulatedLaneTest, NothingRunsBehindAFailureThatHaltsTheLane) {
  SimulatedLane lane(world, Rank{0}, LaneKind::comm, {});
  LaneOperation collective = operation("reduce", milliseconds{1});
  collective.work = [](Stream&) { throw std::runtime_error("out of ink"); };
  collective.failure_halts_lane = true;
  lane.post(std::move(collective));
  lane.post(operation("gather", milliseconds{1}));
  (void)run(2);
  EXPECT_EQ(done[0].outcome.kind, Outcome::Kind::failed);
  EXPECT_EQ(done[1].outcome.kind, Outcome::Kind::halted);
  EXPECT_EQ(done[1].outcome.cause, "reduce: out of ink");
  EXPECT_EQ(worked, "");
}

TEST(ThreadLane, NothingRunsBehindAFailureThatHaltsTheLane) {
  const auto clock = make_system_clock();
  const auto lane = make_thread_lane(LaneKind::comm, Rank{0}, *clock, nullptr);
  std::vector<Outcome> outcomes;
  bool ran = false;
  for (const bool fails : {true, false}) {
    LaneOperation operation;
    operation.name = fails ? "reduce" : "gather";
    operation.failure_halts_lane = true;
    operation.work = [fails, &ran](Stream&) {
      if (fails) throw std::runtime_error("out of ink");
      ran = true;
    };
    operation.done = [&outcomes](const Outcome& outcome) { outcomes.push_back(outcome); };
    lane->post(std::move(operation));
  }
  ASSERT_TRUE(lane->drain(std::chrono::seconds{60}));
  ASSERT_EQ(outcomes.size(), 2U);
  EXPECT_EQ(outcomes[0].kind, Outcome::Kind::failed);
  EXPECT_EQ(outcomes[1].kind, Outcome::Kind::halted);
  EXPECT_EQ(outcomes[1].cause, "reduce: out of ink");
  EXPECT_FALSE(ran);
}

}  // namespace
}  // namespace troupe
