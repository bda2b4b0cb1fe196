#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "tests/flow/whole_runs.hpp"

namespace troupe {
namespace {

const std::uint64_t seeds = seeds_or(50);

FlowKnobs knobs_of(std::uint64_t seed) { return draw_run(seed, static_cast<std::uint32_t>(1 + seed % 8), 4 + seed % 5); }

std::unique_ptr<VirtualCluster> recovering_cluster(const FlowKnobs& knobs) {
  auto cluster = std::make_unique<VirtualCluster>(knobs);
  cluster->respawn = true;
  return cluster;
}

struct Undisturbed {
  std::vector<StepRecord> steps;
  Nanos elapsed;
};
Undisturbed undisturbed(const FlowKnobs& knobs) {
  const auto result = recovering_cluster(knobs)->run();
  EXPECT_EQ(result.flow.findings, "") << describe(knobs);
  EXPECT_EQ(result.recoveries, 0U) << describe(knobs);
  return {result.steps, result.flow.elapsed};
}

TEST(Recovery, AProcessKilledAtAnyMomentIsStartedAgainAndTheRunTellsWhatTheUndisturbedOneTells) {
  std::uint64_t struck = 0, from_memory = 0, from_seed = 0;
  for (std::uint64_t seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
    const FlowKnobs knobs = knobs_of(seed);
    const Undisturbed whole = undisturbed(knobs);
    std::mt19937_64 random(seed);
    const Nanos moment = whole.elapsed * static_cast<int>(random() % 1000) / 1000;
    const auto victim = static_cast<std::uint32_t>(random() % knobs.ranks);
    const Nanos notice{static_cast<Nanos::rep>(random() % 20'000'000)};
    const auto once = [&] {
      auto cluster = recovering_cluster(knobs);
      cluster->before_run = [&](VirtualCluster& of) { kill_at(of, moment, victim, notice); };
      return cluster;
    };
    const auto cluster = once();
    const auto result = cluster->run();
    if (result.recoveries == 0) continue;  // before all had joined, or in the drain
    ++struck;
    expect_same_run(knobs, *cluster, result, whole.steps);
    EXPECT_EQ(result.respawns, 1U) << describe(knobs);
    EXPECT_EQ(once()->run().flow.timed_hash, result.flow.timed_hash) << "repeatable trace, " << describe(knobs);
    from_memory += result.epochs.back().restore.place == EpochOrigin::Place::memory ? 1 : 0;
    from_seed += result.epochs.back().restore.place == EpochOrigin::Place::seed ? 1 : 0;
  }
  EXPECT_GE(struck, seeds / 2);
  EXPECT_GE(from_memory, seeds / 10);
  EXPECT_GE(from_seed, seeds / 20);
}

TEST(Recovery, ASecondProcessMayDieWithTheFirstOrWhileTheJobRecovers) {
  std::uint64_t twice = 0;
  for (std::uint64_t seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
    FlowKnobs knobs = knobs_of(seed);
    knobs.ranks = std::max(knobs.ranks, 2U);
    const Undisturbed whole = undisturbed(knobs);
    std::mt19937_64 random(seed);
    const Nanos moment = whole.elapsed * static_cast<int>(300 + random() % 600) / 1000;
    const auto first = static_cast<std::uint32_t>(random() % knobs.ranks), second = static_cast<std::uint32_t>(random() % knobs.ranks);
    const Nanos later{static_cast<Nanos::rep>(random() % 700'000'000)};
    const bool together = random() % 3 == 0;
    auto cluster = recovering_cluster(knobs);
    cluster->before_run = [&](VirtualCluster& of) {
      kill_at(of, moment, first, Nanos{1'000'000});
      if (together) kill_at(of, moment, second, Nanos{3'000'000});
    };
    cluster->on_recovering = [&](VirtualCluster& of, EpochId ended) {
      if (!together && ended == EpochId{1}) kill_at(of, of.world().clock().now() + later, second, Nanos{2'000'000});
    };
    const auto result = cluster->run();
    if (result.recoveries == 0) continue;
    expect_same_run(knobs, *cluster, result, whole.steps);
    twice += result.respawns == 2 ? 1 : 0;
  }
  EXPECT_GE(twice, seeds / 3);
}

TEST(Recovery, AProcessThatDiesWhileASnapshotIsCopiedOrSealedLosesNothing) {
  for (std::uint64_t seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
    FlowKnobs knobs = knobs_of(seed);
    knobs.keep_every = 1 + static_cast<std::uint32_t>(seed % 2);
    knobs.snapshot_every = seed % 2 == 0 ? 2 : 0;
    knobs.letter_delay = std::chrono::milliseconds{3};
    const Undisturbed whole = undisturbed(knobs);
    auto cluster = recovering_cluster(knobs);
    bool killed = false;
    cluster->on_kept = [&](VirtualCluster& of, Step) {
      if (std::exchange(killed, true)) return;
      kill_at(of, of.world().clock().now() + Nanos{static_cast<Nanos::rep>(seed * 7919 % 8'000'000)}, static_cast<std::uint32_t>(seed % knobs.ranks), {});
    };
    const auto result = cluster->run();
    if (result.recoveries > 0) expect_same_run(knobs, *cluster, result, whole.steps);
  }
}

TEST(Recovery, AFailedOperationEndsTheEpochAndNotTheRunNorAnyProcess) {
  std::uint64_t struck = 0;
  for (std::uint64_t seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
    const FlowKnobs knobs = knobs_of(seed);
    const Undisturbed whole = undisturbed(knobs);
    auto cluster = recovering_cluster(knobs);
    const auto counter = std::make_shared<std::uint64_t>(0);
    cluster->alter_lane = [counter, victim = seed * 7919 % (100 * knobs.ranks)](std::uint32_t, LaneKind lane, LaneModel& model) {
      if (lane == LaneKind::storage || lane == LaneKind::copy) return;  // a save or a snapshot that fails is no fault
      model.fault = [counter, victim](const LaneOperation&) { return (*counter)++ == victim ? LaneFault{LaneFault::Kind::fail, {}, "bit flip"} : LaneFault{}; };
    };
    const auto result = cluster->run();
    if (result.recoveries == 0) continue;
    ++struck;
    expect_same_run(knobs, *cluster, result, whole.steps);
    EXPECT_EQ(result.respawns, 0U) << describe(knobs);
  }
  EXPECT_GE(struck, seeds / 2);
}

TEST(Recovery, ASnapshotThatCannotBeReadIsPassedOverForTheOneBeforeAndThenForTheSeed) {
  FlowKnobs knobs = knobs_of(3);
  knobs.steps = 12;
  knobs.keep_every = 2;
  knobs.snapshot_every = 0;
  const Undisturbed whole = undisturbed(knobs);
  auto cluster = recovering_cluster(knobs);
  bool struck = false;
  cluster->on_kept = [&](VirtualCluster& of, Step step) {
    if (step != Step{8} || std::exchange(struck, true)) return;
    of.spoil_memory(0);
    kill_at(of, of.world().clock().now(), 1, {});
  };
  const auto result = cluster->run();
  expect_same_run(knobs, *cluster, result, whole.steps);
  ASSERT_EQ(result.epochs.size(), 4U);
  EXPECT_EQ(result.epochs[1].restore.place, EpochOrigin::Place::memory);
  EXPECT_EQ(result.epochs[2].restore.place, EpochOrigin::Place::memory);
  EXPECT_LT(result.epochs[2].restore_step, result.epochs[1].restore_step);
  EXPECT_EQ(result.epochs[3].restore.place, EpochOrigin::Place::seed);
}

TEST(Recovery, AStepThatEndsThreeEpochsStopsTheRunByName) {
  FlowKnobs knobs = knobs_of(3);
  knobs.steps = 8;
  auto cluster = recovering_cluster(knobs);
  cluster->alter_lane = [](std::uint32_t rank, LaneKind lane, LaneModel& model) {
    if (rank != 0 || lane != LaneKind::compute) return;
    model.fault = [](const LaneOperation& operation) {
      return operation.where.step == Step{5} ? LaneFault{LaneFault::Kind::fail, {}, "a poisoned batch"} : LaneFault{};
    };
  };
  const auto result = cluster->run();
  ASSERT_TRUE(result.end) << result.flow.end.report;
  EXPECT_FALSE(result.end->ok);
  EXPECT_EQ(result.end->last_step, Step{4});
  EXPECT_EQ(result.recoveries, 2U);
  EXPECT_NE(result.end->cause.find("a poisoned batch; step 5 has now ended 3 epochs (elastic.attempts)"), std::string::npos) << result.end->cause;
  EXPECT_EQ(result.ended, knobs.ranks);
}

TEST(Recovery, AStopThatWasAskedForIsKeptThroughAFault) {
  for (std::uint64_t seed = 1; seed <= 40 && !::testing::Test::HasFailure(); ++seed) {
    FlowKnobs knobs = knobs_of(seed);
    knobs.steps = 1000;
    auto cluster = recovering_cluster(knobs);
    const Nanos moment = std::chrono::milliseconds{200 + seed * 7919 % 200};
    cluster->before_run = [&](VirtualCluster& of) {
      of.world().clock().at(moment, [&of] { of.tell<schema::StopRequested>(coordinator_address, [](auto body) { body.setReason("SIGTERM"); }); });
      kill_at(of, moment + Nanos{static_cast<Nanos::rep>(seed % 5) * 1'000'000}, static_cast<std::uint32_t>(seed % knobs.ranks), {});
    };
    const auto result = cluster->run();
    EXPECT_EQ(result.flow.findings, "") << describe(knobs);
    ASSERT_TRUE(result.end) << describe(knobs) << result.flow.end.report;
    EXPECT_TRUE(result.end->ok) << describe(knobs) << result.end->cause;
    EXPECT_LT(result.end->last_step, Step{1000});
    EXPECT_EQ(result.steps.size(), result.end->last_step.value()) << describe(knobs);
  }
}

}  // namespace
}  // namespace troupe
