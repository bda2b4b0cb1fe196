#include "tools/foresight/simulated_cluster.hpp"

#include <gtest/gtest.h>

#include "src/plan/compiler.hpp"

namespace troupe {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

/// Probe p13's step: eight layers, each gathered again for its backward, two micro-batches, nothing but what overlaps.
SimulatedJobOptions probe(std::uint32_t slots, bool prefetch_before_reduce = true) {
  UnitShape layer{.gather_bytes = 32, .reduce_bytes = 16};
  layer.forward = milliseconds{3};
  layer.backward = milliseconds{6};
  layer.gather = layer.reduce = microseconds{2500};
  PlanShape shape;
  shape.units.assign(8, layer);
  shape.micro_batches = 2;
  shape.load = milliseconds{4};
  shape.prefetch_before_reduce = prefetch_before_reduce;
  SimulatedJobOptions job;
  job.slots = {slots, slots, slots, 1};
  job.plans = std::make_shared<const PlanSet>(compile_plans(shape, job.slots).value());
  job.units = 8;
  job.micro_batches = 2;
  job.cost = [](const PlannedOperation& operation) { return operation.cost; };
  job.last = Step{5};
  return job;
}

/// Percent of a later step that the compute lane is busy; of a job that came to a good end.
double busy(const SimulatedJobOptions& job) {
  const SimulatedOutcome outcome = simulate_job(job);
  EXPECT_EQ(outcome.findings, "");
  EXPECT_EQ(outcome.end.how, RunEnd::How::finished) << outcome.end.report;
  if (outcome.steps.size() < 5) return 0;
  return 100.0 * 144e6 / static_cast<double>((outcome.steps[3].at - outcome.steps[2].at).count());
}

TEST(SimulatedCluster, HasTheProbesThreeNumbersWithRealCoordinatorAndSupervisors) {
  EXPECT_NEAR(busy(probe(1)), 54.5, 0.1);
  EXPECT_NEAR(busy(probe(2)), 93.5, 0.1);
  EXPECT_NEAR(busy(probe(2, false)), 64.3, 0.1);
}

TEST(SimulatedCluster, MoreRanksThatDoTheSameTakeTheSameTime) {
  SimulatedJobOptions many = probe(2);
  many.shards = 4;
  EXPECT_NEAR(busy(many), 93.5, 0.1);
}

TEST(SimulatedCluster, SharedCoresMakeOverlappedWorkWaitForACore) {
  SimulatedJobOptions job = probe(2);
  job.cores = 1;
  EXPECT_LT(busy(job), 60) << "with one core compute and collectives take turns";
  job.cores = 3;
  EXPECT_NEAR(busy(job), 93.5, 0.1) << "with one for each lane nothing changes";
}

TEST(SimulatedCluster, ALetterBetweenLanesCostsItsTimeWhereALaneWaitsForIt) {
  SimulatedJobOptions job = probe(1);
  const double before = busy(job);
  job.letter = microseconds{500};
  EXPECT_LT(busy(job), before - 3);
}

TEST(SimulatedCluster, AChangeOfSlotsBeginsANewEpochWhoseStepsAreThoseOfTheNewPlan) {
  SimulatedJobOptions job = probe(1);
  job.last = Step{12};
  job.changes.emplace(Step{7}, probe(2));
  job.hand_over = milliseconds{30};
  job.build = [](EpochOrigin::Place place) { return place == EpochOrigin::Place::memory ? milliseconds{200} : milliseconds{0}; };
  const SimulatedOutcome outcome = simulate_job(job);
  EXPECT_EQ(outcome.findings, "");
  ASSERT_EQ(outcome.end.how, RunEnd::How::finished) << outcome.end.report;
  ASSERT_EQ(outcome.steps.size(), 12U) << "each told once";
  const auto busy_to = [&](std::size_t i) { return 100.0 * 144e6 / static_cast<double>((outcome.steps[i].at - outcome.steps[i - 1].at).count()); };
  EXPECT_EQ(outcome.steps[5].epoch, EpochId{1});
  EXPECT_EQ(outcome.steps[6].epoch, EpochId{2});
  EXPECT_NEAR(busy_to(4), 54.5, 0.1);
  EXPECT_NEAR(busy_to(10), 93.5, 0.1);
  EXPECT_GE(outcome.steps[6].at - outcome.steps[5].at, milliseconds{230 + 144});
}

TEST(SimulatedCluster, ADeathIsRecoveredFromTheNewestSnapshotInMemory) {
  SimulatedJobOptions job = probe(2);
  PlanShape shape;
  UnitShape layer{.gather_bytes = 32, .reduce_bytes = 16};
  layer.forward = layer.backward = milliseconds{5};
  shape.units.assign(4, layer);
  shape.keeps = true;
  shape.keep = milliseconds{2};
  job.plans = std::make_shared<const PlanSet>(compile_plans(shape, job.slots).value());
  job.units = 4;
  job.micro_batches = 1;
  job.shards = 2;
  job.last = Step{30};
  job.keep_every = 10;
  job.respawn = true;
  job.start_time = milliseconds{300};
  job.notice = milliseconds{10};
  job.build = [](EpochOrigin::Place) { return milliseconds{50}; };
  job.deaths = {{milliseconds{900}, Rank{1}}};
  const SimulatedOutcome outcome = simulate_job(job);
  EXPECT_EQ(outcome.findings, "");
  ASSERT_EQ(outcome.end.how, RunEnd::How::finished) << outcome.end.report;
  ASSERT_EQ(outcome.recoveries.size(), 1U);
  const auto& recovery = outcome.recoveries.front();
  EXPECT_EQ(outcome.steps.size(), 30U) << "each told once";
  EXPECT_EQ(recovery.lost_from.value() % 10, 1U) << "the step behind a snapshot";
  EXPECT_GE(recovery.first_step - recovery.died, milliseconds{360});
}

}  // namespace
}  // namespace troupe
