#include <gtest/gtest.h>

#include <chrono>

#include "tests/flow/whole_runs.hpp"

/// Reports that come when the run has failed already. Between two processes nothing orders them and another rank's fault.
namespace troupe {
namespace {

using std::chrono::milliseconds;

FlowKnobs two_ranks() {
  FlowKnobs knobs;
  knobs.ranks = 2;
  knobs.steps = 8;
  knobs.begun_ahead = 2;
  knobs.forward = milliseconds{1};
  knobs.backward = milliseconds{2};
  return knobs;
}

/// Letters of a kind, of one step and from one rank (any: launcher_rank's for the Coordinator), take so long.
void slow(VirtualCluster& cluster, LetterKind kind, Rank from, std::uint64_t step, Nanos by) {
  cluster.world().letters_under_way().slow([=](const schema::Envelope::Reader& envelope) {
    const bool meant = envelope.getBody().which() == kind && envelope.getFrom().getRank() == from.value() && envelope.getWhere().getStep() == step;
    return meant ? by : Nanos{0};
  });
}

TEST(LateReports, AStepThatEveryRankHadCommittedCountsThoughItsLastReportComesAfterTheFaultOfAnother) {
  VirtualCluster cluster(two_ranks());
  Nanos failed{0}, told{0};
  cluster.before_run = [](VirtualCluster& of) { slow(of, LetterKind::STEP_REPORT, Rank{1}, 3, milliseconds{50}); };
  cluster.alter_lane = [&](std::uint32_t rank, LaneKind lane, LaneModel& model) {
    if (rank != 0 || lane != LaneKind::compute) return;
    model.fault = [&](const LaneOperation& operation) {
      if (operation.where.step != Step{4}) return LaneFault{};
      failed = cluster.world().clock().now();
      return LaneFault{LaneFault::Kind::fail, {}, "bit flip"};
    };
  };
  cluster.on_step = [&](const StepRecord& record) {
    if (record.step == Step{3}) told = cluster.world().clock().now();
  };
  const auto result = cluster.run();
  EXPECT_EQ(result.flow.findings, "");
  ASSERT_TRUE(result.end) << result.flow.end.report;
  EXPECT_FALSE(result.end->ok);
  EXPECT_NE(result.end->cause.find("bit flip"), std::string::npos) << result.end->cause;
  EXPECT_EQ(result.end->last_step, Step{3});
  ASSERT_EQ(result.steps.size(), 3U);
  EXPECT_GT(told, failed + milliseconds{30}) << "the report did come after the fault";
  EXPECT_EQ(result.ended, 2U);
}

TEST(LateReports, AfterTheGuardHasStoppedTheRunNoStepCountsThatWasUnderWay) {
  FlowKnobs knobs = two_ranks();
  knobs.overflow_step = 3;
  VirtualCluster cluster(knobs);
  cluster.guard.stop_at_nonfinite = true;
  cluster.before_run = [](VirtualCluster& of) { slow(of, LetterKind::EPOCH_END, launcher_rank, 3, milliseconds{50}); };  // step 4 is done by then
  const auto result = cluster.run();
  EXPECT_EQ(result.flow.findings, "");
  ASSERT_TRUE(result.end) << result.flow.end.report;
  EXPECT_FALSE(result.end->ok);
  EXPECT_EQ(result.flow.reported, Step{4}) << "by the ranks";
  EXPECT_EQ(result.end->last_step, Step{3});
  EXPECT_EQ(result.steps.size(), 3U);
}

TEST(LateReports, OfARunThatFailsExactlyTheStepsThatEveryRankReportedAreTold) {
  for (std::uint64_t seed = 1; seed <= seeds_or(100) && !::testing::Test::HasFailure(); ++seed) {
    FlowKnobs knobs = draw_run(seed, static_cast<std::uint32_t>(2 + seed % 3), 6);
    knobs.begun_ahead = 1 + static_cast<std::uint32_t>(seed % 3);
    knobs.letter_delay = milliseconds{20};
    VirtualCluster cluster(knobs);
    cluster.alter_lane = [victim = static_cast<std::uint32_t>(seed) % knobs.ranks](std::uint32_t rank, LaneKind lane, LaneModel& model) {
      if (rank != victim || lane != LaneKind::compute) return;
      model.fault = [](const LaneOperation& operation) {
        return operation.where.step == Step{4} ? LaneFault{LaneFault::Kind::fail, {}, "bit flip"} : LaneFault{};
      };
    };
    const auto result = cluster.run();
    ASSERT_TRUE(result.end) << describe(knobs) << result.flow.end.report;
    Step all = cluster.world().invariants().reported(Rank{0});
    for (std::uint32_t rank = 1; rank < knobs.ranks; ++rank) all = std::min(all, cluster.world().invariants().reported(Rank{rank}));
    EXPECT_TRUE(all == Step{2} || all == Step{3}) << describe(knobs) << ": step 4 begins while the optimizer ends step 3";
    EXPECT_EQ(result.end->last_step, all) << describe(knobs);
    EXPECT_EQ(result.steps.size(), all.value()) << describe(knobs);
  }
}

}  // namespace
}  // namespace troupe
