#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>

#include "tests/support/virtual_world_cluster.hpp"

/// [training.guard] under virtual time: training goes back to an earlier state after a step that is not finite, and the run stays exact under faults.
namespace troupe {
namespace {

constexpr std::uint64_t seeds = 60;
constexpr std::uint32_t steps_back = 3;

/// One step of every job is not finite; it has snapshots every one to three steps, or none.
FlowKnobs knobs_of(std::uint64_t seed) {
  FlowKnobs knobs = draw_knobs(seed, static_cast<std::uint32_t>(1 + seed % 6));
  if (knobs.ranks % knobs.replicas != 0) knobs.replicas = 1;
  knobs.steps = 9 + seed % 6;
  knobs.keep_every = static_cast<std::uint32_t>(seed % 4);
  knobs.keep = Nanos{static_cast<Nanos::rep>(seed % 7) * 1'000'000};
  knobs.overflow_step = 2 + seed % (knobs.steps - 2);
  return knobs;
}

std::unique_ptr<VirtualCluster> guarded_cluster(const FlowKnobs& knobs, bool respawn) {
  auto cluster = std::make_unique<VirtualCluster>(knobs);
  cluster->respawn = respawn;
  cluster->guard = {.roll_back_at_nonfinite = true, .steps_back = steps_back};
  cluster->rollback_steps = steps_back;
  return cluster;
}

void expect_a_whole_run(const FlowKnobs& knobs, const VirtualCluster& cluster, const VirtualCluster::Result& result) {
  EXPECT_EQ(result.flow.findings, "") << describe(knobs);
  ASSERT_TRUE(result.end) << describe(knobs) << "\n" << result.flow.end.report;
  EXPECT_TRUE(result.end->ok) << describe(knobs) << "\n" << result.end->cause;
  EXPECT_TRUE(result.stuck.empty()) << describe(knobs);
  EXPECT_EQ(cluster.open_operations(), 0) << describe(knobs);
  ASSERT_EQ(result.steps.size(), knobs.steps) << describe(knobs);
  for (std::size_t i = 0; i < result.steps.size(); ++i) EXPECT_EQ(result.steps[i].step, Step{i + 1}) << describe(knobs);
}

void expect_the_same(const FlowKnobs& knobs, const VirtualCluster::Result& one, const VirtualCluster::Result& other) {
  ASSERT_EQ(one.steps.size(), other.steps.size()) << describe(knobs);
  for (std::size_t i = 0; i < one.steps.size(); ++i) {
    EXPECT_EQ(one.steps[i].common.loss, other.steps[i].common.loss) << describe(knobs);
    EXPECT_EQ(one.steps[i].common.digest, other.steps[i].common.digest) << describe(knobs);
    EXPECT_EQ(one.steps[i].total_tokens, other.steps[i].total_tokens) << describe(knobs);
  }
}

TEST(Guard, AStepThatIsNotFiniteSendsAllRanksToTheSnapshotThatIsOldEnoughAndOnWithTheNextStep) {
  std::uint64_t from_memory = 0;
  for (std::uint64_t seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
    const FlowKnobs knobs = knobs_of(seed);
    const auto cluster = guarded_cluster(knobs, seed % 2 == 0);
    const auto result = cluster->run();
    expect_a_whole_run(knobs, *cluster, result);
    ASSERT_EQ(result.rollbacks.size(), 1U) << describe(knobs);
    const auto& [after, to] = result.rollbacks.front();
    EXPECT_EQ(after, Step{knobs.overflow_step});
    const std::uint64_t old_enough = knobs.overflow_step > steps_back ? knobs.overflow_step - steps_back : 0;
    if (knobs.snapshot_every == 0) {
      EXPECT_EQ(to.step, Step{knobs.keep_every > 0 ? old_enough / knobs.keep_every * knobs.keep_every : 0}) << describe(knobs);
    }
    EXPECT_LE(to.step, Step{old_enough}) << describe(knobs);
    from_memory += to.place == EpochOrigin::Place::memory ? 1 : 0;
    ASSERT_EQ(result.epochs.size(), 2U) << describe(knobs);
    EXPECT_EQ(result.epochs[1].first_step, after.next());
    EXPECT_EQ(result.epochs[1].restore_step, to.step);
    EXPECT_EQ(result.respawns + result.recoveries, 0U) << "it is no fault";
    ASSERT_EQ(result.set_aside.size(), 1U);
    EXPECT_EQ(result.set_aside.front(), std::pair(to.step, after));
  }
  EXPECT_GE(from_memory, seeds / 4);
}

TEST(Guard, AProcessKilledAtAnyMomentChangesNothingOfARunThatWasRolledBack) {
  std::uint64_t struck = 0, after_it = 0;
  for (std::uint64_t seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
    FlowKnobs knobs = knobs_of(seed);
    knobs.snapshot_every = 0;  // when a checkpoint is sealed depends on the storage
    const auto whole = guarded_cluster(knobs, true)->run();
    std::mt19937_64 random(seed);
    const Nanos moment = whole.flow.elapsed * static_cast<int>(random() % 1000) / 1000;
    const auto victim = static_cast<std::uint32_t>(random() % knobs.ranks);
    const auto once = [&] {
      auto cluster = guarded_cluster(knobs, true);
      cluster->before_run = [&](VirtualCluster& of) { of.world().clock().at(moment, [&of, victim] { of.kill(victim); }); };
      return cluster;
    };
    const auto cluster = once();
    const auto result = cluster->run();
    if (result.respawns == 0) continue;
    ++struck;
    expect_a_whole_run(knobs, *cluster, result);
    expect_the_same(knobs, result, whole);
    ASSERT_EQ(result.rollbacks.size(), 1U) << describe(knobs);
    EXPECT_EQ(result.rollbacks.front().second.step, whole.rollbacks.front().second.step) << describe(knobs);
    after_it += result.epochs.back().restore_step < Step{knobs.overflow_step} && result.epochs.back().first_step > Step{knobs.overflow_step} ? 1 : 0;
    EXPECT_EQ(once()->run().flow.timed_hash, result.flow.timed_hash) << "repeatable trace, " << describe(knobs);
  }
  EXPECT_GE(struck, seeds / 3);
  EXPECT_GE(after_it, 5U) << "a fault between the rollback and the next snapshot goes back to where the rollback went";
}

TEST(Guard, ALostSnapshotIsReplacedByAReplayThatRollsBackAgain) {
  FlowKnobs knobs = knobs_of(3);
  knobs.steps = 14;
  knobs.keep_every = 2;
  knobs.snapshot_every = 0;
  knobs.overflow_step = 9;
  const auto whole = guarded_cluster(knobs, true)->run();
  auto cluster = guarded_cluster(knobs, true);
  bool struck = false;
  cluster->on_step = [&](const StepRecord& record) {
    if (record.step != Step{10} || std::exchange(struck, true)) return;
    cluster->world().clock().after(Nanos{0}, [&] {
      cluster->spoil_memory(0);
      cluster->kill(1);
    });
  };
  const auto result = cluster->run();
  expect_a_whole_run(knobs, *cluster, result);
  expect_the_same(knobs, result, whole);
  EXPECT_EQ(result.rollbacks.size(), 1U) << "told once";
  EXPECT_GT(result.epochs.size(), 3U);
}

TEST(Guard, MoreRollbacksThanAreAllowedEndTheRunByName) {
  FlowKnobs knobs = knobs_of(3);
  knobs.overflow_step = 5;
  auto cluster = guarded_cluster(knobs, true);
  cluster->guard.most = 0;
  const auto result = cluster->run();
  ASSERT_TRUE(result.end) << result.flow.end.report;
  EXPECT_FALSE(result.end->ok);
  EXPECT_NE(result.end->cause.find("training was rolled back 0 times already (training.guard.rollbacks)"), std::string::npos) << result.end->cause;
}

}  // namespace
}  // namespace troupe
