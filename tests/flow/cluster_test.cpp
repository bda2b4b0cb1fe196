#include <gtest/gtest.h>

#include <caf/send.hpp>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>

#include "actors/step_observer.hpp"
#include "src/runtime/send.hpp"
#include "tests/support/broken_programs.hpp"
#include "tests/support/virtual_world_cluster.hpp"

namespace troupe {
namespace {

constexpr std::uint64_t seeds = 150;

FlowKnobs knobs_of(std::uint64_t seed) { return draw_knobs(seed, std::uint32_t{1} << (seed % 3)); }

TEST(Cluster, CoordinatorAndSupervisorsRunEveryStepOnceAndStopCleanly) {
  std::set<std::uint64_t> orders;
  for (std::uint64_t seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
    const FlowKnobs knobs = knobs_of(seed);
    const auto result = VirtualCluster(knobs).run();
    EXPECT_EQ(result.flow.findings, "") << describe(knobs);
    EXPECT_EQ(result.flow.fault, "") << describe(knobs);
    ASSERT_TRUE(result.end && result.end->ok) << describe(knobs) << "\n" << result.flow.end.report;
    EXPECT_EQ(result.end->last_step, Step{knobs.steps});
    ASSERT_EQ(result.steps.size(), knobs.steps);
    for (std::size_t i = 0; i < result.steps.size(); ++i) {
      EXPECT_EQ(result.steps[i].step, Step{i + 1});
      EXPECT_EQ(result.steps[i].common.outcome == VerdictOutcome::skip, i + 1 == knobs.overflow_step) << describe(knobs);
      const bool evaluated = knobs.evaluate_every > 0 && (i + 1) % knobs.evaluate_every == 0;
      EXPECT_EQ(result.steps[i].common.evaluation_tokens, evaluated ? 4 * knobs.evaluation_batches * knobs.ranks : 0) << describe(knobs);
    }
    EXPECT_EQ(result.sealed.size(), knobs.snapshot_every == 0 ? 0 : knobs.steps / knobs.snapshot_every) << describe(knobs);
    EXPECT_EQ(VirtualCluster(knobs).run().flow.timed_hash, result.flow.timed_hash) << "repeatable trace, " << describe(knobs);
    orders.insert(result.flow.order_hash);
  }
  EXPECT_GE(orders.size(), seeds * 9 / 10);
}

/// Seconds that the second step's compute waited for a batch, when the load of one took 60 ms more than its 4 ms; a micro-batch computes for 72 ms.
double wait_for_a_slow_file(std::uint32_t batch_slots) {
  using std::chrono::milliseconds;
  FlowKnobs knobs;
  knobs.layers = 8;
  knobs.plain_layers = true;
  knobs.micro_batches = 2;
  knobs.steps = 3;
  knobs.slots = {batch_slots, 2, 2, 1};
  knobs.forward = milliseconds{3};
  knobs.backward = milliseconds{6};
  knobs.load = milliseconds{4};
  VirtualCluster cluster(knobs);
  cluster.alter_lane = [](std::uint32_t, LaneKind lane, LaneModel& model) {
    if (lane != LaneKind::disk) return;
    model.fault = [](const LaneOperation& operation) {
      const bool struck = operation.where.step == Step{2} && operation.where.micro == Micro{1};
      return struck ? LaneFault{LaneFault::Kind::stall, milliseconds{60}, {}} : LaneFault{};
    };
  };
  const auto result = cluster.run();
  EXPECT_EQ(result.flow.findings, "");
  return std::chrono::duration<double>(result.steps.at(1).common.wait_batch).count();
}

TEST(Cluster, TheReportsSayHowLongASlowFileWasWaitedForAndReadingAheadHidesIt) {
  EXPECT_NEAR(wait_for_a_slow_file(1), 0.004 + 0.064, 1e-3) << "one slot: each batch is waited for, the slow one to its end";
  EXPECT_NEAR(wait_for_a_slow_file(2), 0.004, 1e-3) << "two: the slow one was read while the micro-batch before was computed";
}

TEST(Cluster, TheJobLearnsWhatTheRanksDevicesAreAbleTo) {
  FlowKnobs knobs = knobs_of(1);
  knobs.ranks = 2;
  knobs.replicas = 1;
  const auto result = VirtualCluster(knobs).run();
  EXPECT_DOUBLE_EQ(result.devices.peak_flops, 3e12 + 0.5) << "the mean";
  EXPECT_DOUBLE_EQ(result.devices.peak_flops_fp8, 6e12);
  EXPECT_EQ(result.devices.memory_bytes, 100U) << "the smallest";
  const std::vector<DevicePowers> one_unknown{{3e12, 6e12, 100}, {0, 6e12, 100}};
  EXPECT_EQ(common_powers(one_unknown).peak_flops, 0);
  EXPECT_EQ(common_powers(one_unknown).peak_flops_fp8, 6e12);
}

void expect_named_stop(const FlowKnobs& knobs, const VirtualCluster& cluster, const VirtualCluster::Result& result, const std::string& cause) {
  EXPECT_EQ(result.flow.end.how, RunEnd::How::finished) << describe(knobs) << "\n" << result.flow.end.report;
  EXPECT_EQ(result.flow.findings, "") << describe(knobs);
  ASSERT_TRUE(result.end) << describe(knobs);
  EXPECT_FALSE(result.end->ok) << describe(knobs);
  EXPECT_NE(result.end->cause.find(cause), std::string::npos) << describe(knobs) << "\n" << result.end->cause;
  EXPECT_TRUE(result.stuck.empty()) << describe(knobs) << "\n" << result.stuck.front();
  EXPECT_EQ(result.ended, knobs.ranks) << describe(knobs);
  EXPECT_EQ(cluster.open_operations(), 0) << describe(knobs);
}

TEST(Cluster, AFailedOperationStopsTheJobWithItsCauseAndEveryRankComesToRest) {
  for (std::uint64_t seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
    const FlowKnobs knobs = knobs_of(seed);
    VirtualCluster cluster(knobs);
    const auto counter = std::make_shared<std::uint64_t>(0);
    cluster.alter_lane = [counter, victim = seed * 7919 % (60 * knobs.ranks)](std::uint32_t, LaneKind lane, LaneModel& model) {
      if (lane == LaneKind::storage) return;  // a save that fails is no fault
      model.fault = [counter, victim](const LaneOperation&) { return (*counter)++ == victim ? LaneFault{LaneFault::Kind::fail, {}, "bit flip"} : LaneFault{}; };
    };
    const auto result = cluster.run();
    if (*counter > seed * 7919 % (60 * knobs.ranks)) expect_named_stop(knobs, cluster, result, "bit flip");
  }
}

/// What the host agent says when a process is gone.
void kill(VirtualCluster& cluster, std::uint32_t victim, Nanos delay) {
  cluster.world().clock().after(delay, [&cluster, victim] {
    cluster.tell<schema::FaultReport>(coordinator_address, [&](auto body) {
      body.setRank(victim);
      body.setCause("killed by signal 9");
      body.setSignal(9);
    });
  });
}

TEST(Cluster, ARankThatDiesAtAnyMomentStopsTheJobAndTheOthersComeToRest) {
  std::uint64_t struck = 0;
  for (std::uint64_t seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
    const FlowKnobs knobs = knobs_of(seed);
    const Nanos moment = VirtualCluster(knobs).run().flow.elapsed * static_cast<int>(seed * 7919 % 1000) / 1000;
    VirtualCluster cluster(knobs);
    cluster.before_run = [&](VirtualCluster& of) { kill(of, static_cast<std::uint32_t>(seed) % knobs.ranks, moment); };
    const auto result = cluster.run();
    if (result.flow.fault.empty()) continue;
    ++struck;
    expect_named_stop(knobs, cluster, result, "killed by signal 9");
  }
  EXPECT_GE(struck, seeds * 3 / 4);
}

TEST(Cluster, ARankThatDiesWhileTheJobDrainsStopsItAndTheOthersComeToRest) {
  std::uint64_t struck = 0;
  for (std::uint64_t seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
    const FlowKnobs knobs = knobs_of(seed);
    VirtualCluster cluster(knobs);
    cluster.at_the_end = [&](VirtualCluster& of) {
      kill(of, static_cast<std::uint32_t>(seed) % knobs.ranks, knobs.letter_delay * static_cast<int>(seed % 10) / 10);
    };
    const auto result = cluster.run();
    if (result.flow.fault.empty()) continue;
    ++struck;
    expect_named_stop(knobs, cluster, result, "killed by signal 9");
  }
  EXPECT_GE(struck, seeds / 2);
}

TEST(Cluster, AStopOnRequestEndsAtAStepBoundaryThatAllRanksShare) {
  for (std::uint64_t seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
    FlowKnobs knobs = knobs_of(seed);
    knobs.steps = 1000;
    VirtualCluster cluster(knobs);
    const Nanos moment = std::chrono::milliseconds{200 + seed * 7919 % 200};
    cluster.before_run = [moment](VirtualCluster& of) {
      of.world().clock().at(moment, [&of] { of.tell<schema::StopRequested>(coordinator_address, [](auto body) { body.setReason("SIGTERM"); }); });
    };
    const auto result = cluster.run();
    EXPECT_EQ(result.flow.findings, "") << describe(knobs);
    ASSERT_TRUE(result.end && result.end->ok) << describe(knobs) << "\n" << result.flow.end.report;
    EXPECT_TRUE(result.end->on_request);
    EXPECT_LT(result.end->last_step, Step{1000});
    EXPECT_EQ(result.steps.size(), result.end->last_step.value());
  }
}

TEST(Cluster, AShardThatOneRankCannotWriteHasTheWholeCheckpointGivenUpAndTheNextIntervalTriesAgain) {
  FlowKnobs knobs = draw_knobs(5, 2);
  knobs.steps = 4;
  knobs.snapshot_every = 2;
  VirtualCluster cluster(knobs);
  cluster.alter_lane = [](std::uint32_t rank, LaneKind lane, LaneModel& model) {
    if (rank != 1 || lane != LaneKind::storage) return;
    model.fault = [](const LaneOperation& operation) {
      return operation.where.step == Step{2} ? LaneFault{LaneFault::Kind::fail, {}, "disk is full"} : LaneFault{};
    };
  };
  const auto result = cluster.run();
  ASSERT_TRUE(result.end && result.end->ok) << result.flow.end.report;
  ASSERT_EQ(result.given_up.size(), 1U) << "rank 0's shard of step 2 must not stay";
  EXPECT_EQ(result.given_up.front(), std::pair(Step{2}, EpochId{1}));
  EXPECT_NE(result.not_sealed.at(Step{2}).find("rank 1: save: disk is full"), std::string::npos) << result.not_sealed.at(Step{2});
  EXPECT_EQ(result.sealed, std::vector{Step{4}});
}

TEST(Cluster, AStopWhileRanksStillJoinIsACleanEndAndThoseWhoJoinedAreTold) {
  FlowKnobs knobs = draw_knobs(5, 2);
  VirtualCluster cluster(knobs);
  cluster.absent = 1;
  cluster.before_run = [](VirtualCluster& of) {
    of.world().clock().at(std::chrono::seconds{5}, [&of] { of.tell<schema::StopRequested>(coordinator_address, [](auto body) { body.setReason("SIGINT"); }); });
  };
  const auto result = cluster.run();
  EXPECT_EQ(result.flow.end.how, RunEnd::How::finished) << result.flow.end.report;
  ASSERT_TRUE(result.end);
  EXPECT_TRUE(result.end->ok) << result.end->cause;
  EXPECT_TRUE(result.end->on_request);
  EXPECT_EQ(result.end->cause, "");
  EXPECT_EQ(result.flow.fault, "");
  EXPECT_EQ(result.ended, 1U);
}

TEST(Cluster, AnExceptionInTheCoordinatorEndsTheJobWithItsText) {
  const FlowKnobs knobs = draw_knobs(5, 2);
  VirtualCluster cluster(knobs);
  cluster.on_step = [](const StepRecord& record) {
    if (record.step == Step{2}) throw std::runtime_error("the books are torn");
  };
  const auto result = cluster.run();
  expect_named_stop(knobs, cluster, result, "the coordinator, handling StepReport of step 2");
  EXPECT_NE(result.end->cause.find("the books are torn"), std::string::npos) << result.end->cause;
}

/// Ends one actor of rank 1 from outside, while the job trains.
VirtualCluster::Result run_without(ActorKind kind, VirtualCluster& cluster) {
  const auto struck = std::make_shared<bool>(false);
  cluster.on_step = [&cluster, kind, struck](const StepRecord&) {
    if (std::exchange(*struck, true)) return;
    caf::anon_send_exit(cluster.world().actors().directory().find({Rank{1}, kind}), caf::exit_reason::kill);
  };
  return cluster.run();
}

TEST(Cluster, AnActorThatEndsBeforeItsTimeStopsTheJobByName) {
  FlowKnobs knobs = draw_knobs(5, 2);
  knobs.steps = 20;
  for (const ActorKind kind : {ActorKind::data_loader, ActorKind::compute, ActorKind::sharding, ActorKind::checkpoint}) {
    VirtualCluster cluster(knobs);
    const auto result = run_without(kind, cluster);
    ASSERT_TRUE(result.end) << result.flow.end.report;
    EXPECT_FALSE(result.end->ok);
    EXPECT_EQ(result.end->cause, std::string("the ") + name_of(kind) + " actor of rank 1 has ended before it was told to");
  }
}

/// Looks on, and throws at some of the steps.
struct ThrowingObserver final : StepObserver {
  explicit ThrowingObserver(std::vector<Step>& steps, std::set<Step> bad) : seen(steps), throws_at(std::move(bad)) {}
  void step_ended(Step step) override {
    seen.push_back(step);
    if (throws_at.contains(step)) throw std::runtime_error("out of luck");
  }
  [[nodiscard]] bool wants_holders(Step) override { return false; }
  void holders(Step, std::span<const std::pair<ActorKind, std::string>>) override {}
  std::vector<Step>& seen;
  const std::set<Step> throws_at;
};

/// The steps that rank 1's Metrics has seen in a run of 20, in which it is ended from outside, or throws.
std::vector<Step> seen_by_metrics(std::set<Step> throws_at, bool ended_from_outside) {
  FlowKnobs knobs = draw_knobs(5, 2);
  knobs.steps = 20;
  VirtualCluster cluster(knobs);
  std::vector<Step> seen;
  cluster.alter_parts = [&](std::uint32_t rank, RankParts& parts) {
    if (rank == 1) parts.observer = std::make_shared<ThrowingObserver>(seen, throws_at);
  };
  const auto result = ended_from_outside ? run_without(ActorKind::metrics, cluster) : cluster.run();
  EXPECT_EQ(result.flow.findings, "");
  EXPECT_TRUE(result.end && result.end->ok && result.end->last_step == Step{20}) << (result.end ? result.end->cause : result.flow.end.report);
  EXPECT_EQ(result.steps.size(), 20U);
  EXPECT_EQ(result.recoveries, 0U);
  EXPECT_EQ(result.ended, knobs.ranks);
  return seen;
}

TEST(Cluster, AMetricsActorThatEndsBeforeItsTimeStopsNothingAndAnotherTakesItsPlace) {
  EXPECT_EQ(seen_by_metrics({}, true).back(), Step{20});
  const std::vector<Step> all = seen_by_metrics({Step{4}, Step{9}}, false);
  EXPECT_EQ(all.size(), 20U) << "what was not in its mailbox when it ended is seen by the next";
  EXPECT_EQ(all.back(), Step{20});
}

TEST(Cluster, AMetricsActorThatEndsAgainAndAgainIsLeftAloneAndStopsNothing) {
  const std::vector<Step> seen = seen_by_metrics({Step{2}, Step{3}, Step{4}, Step{5}, Step{6}}, false);
  EXPECT_EQ(seen.back(), Step{5}) << "the fourth that ended was the last";
}

TEST(Cluster, ASlotThatDoesNotComeHomeIsNamedWithItsRankAtTheDrainsDeadline) {
  FlowKnobs knobs = draw_knobs(5, 2);
  knobs.slots.batches = 4;
  knobs.steps = 2;
  knobs.micro_batches = 1;
  knobs.evaluate_every = 0;  // its batches would take the other two slots
  VirtualCluster cluster(knobs);
  std::unique_ptr<BrokenPostOffice> office;
  std::optional<Runtime> runtime;
  cluster.alter_parts = [&](std::uint32_t rank, RankParts& parts) {
    if (rank != 1) return;
    office =
        std::make_unique<BrokenPostOffice>(cluster.world().post_office(), schema::Envelope::Body::SLOT_HOME, BrokenPostOffice::Fault::loses, EdgeKind::batches);
    runtime.emplace(Runtime{cluster.runtime().clock, cluster.runtime().log, *office});
    parts.runtime = &*runtime;
  };
  const auto result = cluster.run();
  ASSERT_TRUE(result.end) << result.flow.end.report;
  EXPECT_FALSE(result.end->ok);
  EXPECT_NE(result.end->cause.find("1 of 2 ranks have stopped; rank 1 at step 2: data_loader waits for its slots to come home (batches: 2 of 4 slots out"),
            std::string::npos)
      << result.end->cause;
}

}  // namespace
}  // namespace troupe
