#include <gmock/gmock.h>

#include "messages/frame.hpp"
#include "src/base/cut_text.hpp"
#include "tests/support/actor_fixture.hpp"

namespace troupe {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class RankTest : public ActorFixture {};

TEST_F(RankTest, TrainsTwoStepsAndReportsEach) {
  spawn_all(parts(two_units()));
  actors().begin_step(Step{1}, StepKind::train, 0.5, false);
  actors().begin_step(Step{2}, StepKind::train, 0.25, true);
  run_to_the_end();
  const auto reports = post.kept<schema::StepReport>();
  ASSERT_EQ(reports.size(), 2U);
  EXPECT_EQ(reports[0].where().step, Step{1});
  EXPECT_EQ(reports[0].body().getLearningRate(), 0.5);
  EXPECT_EQ(reports[0].body().getLoss(), 2.5);
  EXPECT_EQ(reports[0].body().getOutcome(), schema::StepOutcome::COMMIT);
  EXPECT_EQ(reports[0].body().getLocalTokens(), 10U);
  EXPECT_EQ(reports[0].body().getDigest(), 100U);
  EXPECT_EQ(reports[1].where().step, Step{2});
  EXPECT_EQ(reports[1].body().getDigest(), 200U);
}

TEST_F(RankTest, RunsEachLanesOperationsInPlanOrder) {
  const RankParts given = parts(two_units());
  spawn_all(given);
  actors().begin_step(Step{1}, StepKind::train, 0.5, true);
  run_to_the_end();
  for (const LaneKind kind : {LaneKind::disk, LaneKind::comm, LaneKind::compute, LaneKind::optimizer}) {
    std::vector<std::string> planned;
    for (const PlannedOperation& operation : given.plans->train.operations) {
      if (operation.lane == kind) planned.push_back(operation.name());
    }
    EXPECT_EQ(lane(kind).names(), planned) << name_of(kind);
  }
}

TEST_F(RankTest, GathersNoFurtherAheadThanItHasSlots) {
  PlanShape shape = two_units();
  shape.units.push_back(shape.units.back());
  spawn_all(parts(shape, {.weights = 2}));
  actors().begin_step(Step{1}, StepKind::train, 0.5, true);
  run();
  while (lane(LaneKind::comm).busy()) {
    lane(LaneKind::comm).finish_one();
    run();
  }
  EXPECT_THAT(lane(LaneKind::comm).names(), ElementsAre("gather L0", "gather L1"));
  lane(LaneKind::disk).finish_one();
  run();
  lane(LaneKind::compute).finish_one();  // forward L0: its slot comes home
  run();
  EXPECT_THAT(lane(LaneKind::comm).names(), ElementsAre("gather L0", "gather L1", "gather L2"));
}

TEST_F(RankTest, PostsNothingOfAStepThatHasNotBegun) {
  spawn_all(parts(two_units()));
  run_to_the_end();
  EXPECT_TRUE(programs.calls.empty());
}

TEST_F(RankTest, LoadsAheadAsFarAsStepsHaveBegunAndSlotsAllow) {
  spawn_all(parts(two_units(), {.batches = 2}));
  for (const std::uint64_t step : {1U, 2U, 3U}) actors().begin_step(Step{step}, StepKind::train, 0.5, false);
  run();
  EXPECT_EQ(lane(LaneKind::disk).names().size(), 2U);
}

TEST_F(RankTest, SavesASnapshotOfAStandingStateAndHoldsTheNextOptimizerBackUntilItIsTaken) {
  spawn_all(parts(two_units(), {}, true));
  actors().begin_step(Step{1}, StepKind::train_and_snapshot, 0.5, false);
  actors().begin_step(Step{2}, StepKind::train, 0.5, true);
  for (bool any = true; any;) {  // the copy lane hangs
    any = false;
    run();
    for (const LaneKind kind : {LaneKind::disk, LaneKind::comm, LaneKind::compute, LaneKind::optimizer}) {
      if (!lane(kind).busy()) continue;
      lane(kind).finish_one();
      any = true;
    }
  }
  EXPECT_EQ(lane(LaneKind::optimizer).names().size(), 2U) << "step 2's optimizer waits for the copy";
  run_to_the_end();
  EXPECT_EQ(lane(LaneKind::optimizer).names().size(), 4U);
  const auto saved = post.kept<schema::ShardSaved>();
  ASSERT_EQ(saved.size(), 1U);
  EXPECT_TRUE(saved[0].body().getOk());
  EXPECT_EQ(saved[0].where().step, Step{1});
  EXPECT_STREQ(saved[0].body().getFile().cStr(), "checkpoint/step-1/shard");
}

TEST_F(RankTest, GoesOnWhenASaveFailsAndTellsTheCoordinator) {
  programs.failing = "save";
  spawn_all(parts(two_units(), {}, true));
  actors().begin_step(Step{1}, StepKind::train_and_snapshot, 0.5, false);
  actors().begin_step(Step{2}, StepKind::train_and_snapshot, 0.5, true);
  run_to_the_end();
  const auto saved = post.kept<schema::ShardSaved>();
  ASSERT_EQ(saved.size(), 2U);
  EXPECT_FALSE(saved[0].body().getOk());
  EXPECT_STREQ(saved[0].body().getProblem().cStr(), "save: out of luck");
  EXPECT_EQ(post.count(LetterKind::FAULT_REPORT), 0U);
  EXPECT_EQ(post.kept<schema::StepReport>().size(), 2U);
}

TEST_F(RankTest, ReportsAFailedOperationOnceWithItsCause) {
  programs.failing = "reduce L1";
  spawn_all(parts(two_units()));
  actors().begin_step(Step{1}, StepKind::train, 0.5, true);
  run_to_the_end();
  const auto faults = post.kept<schema::FaultReport>();
  ASSERT_EQ(faults.size(), 1U);
  EXPECT_STREQ(faults[0].body().getCause().cStr(), "reduce L1: out of luck");
  EXPECT_EQ(faults[0].from().actor, ActorKind::sharding);
  EXPECT_EQ(post.count(LetterKind::STEP_REPORT), 0U);
}

TEST_F(RankTest, AnswersStoppedFromAllFiveAfterADrain) {
  spawn_all(parts(two_units(), {}, true));
  actors().begin_step(Step{1}, StepKind::train_and_snapshot, 0.5, true);
  actors().drain_all();
  run();
  const auto early = post.count(LetterKind::STOPPED);
  EXPECT_EQ(early, 1U) << "only Metrics has nothing to finish";
  run_to_the_end();
  EXPECT_EQ(post.count(LetterKind::STOPPED), 5U);
  for (const auto& stopped : post.kept<schema::Stopped>()) {
    EXPECT_EQ(stopped.body().getLeasesOut(), 0U);
  }
}

TEST_F(RankTest, EndsAnEpochInTheMiddleOfAStepWithAllLeasesHome) {
  spawn_all(parts(two_units()));
  actors().begin_step(Step{1}, StepKind::train, 0.5, true);
  run();
  lane(LaneKind::comm).finish_one();  // weights of L0 travel to Compute
  lane(LaneKind::disk).finish_one();
  run();
  actors().halt("rank 1 died");
  actors().end_epoch_all("rank 1 died");
  run_to_the_end();
  EXPECT_EQ(post.count(LetterKind::STOPPED), 5U);
  EXPECT_EQ(post.count(LetterKind::FAULT_REPORT), 0U) << "halted is not a fault";
  EXPECT_THAT(programs.calls, ElementsAre("gather L0", "load m0")) << "nothing runs after the halt";
}

TEST_F(RankTest, SaysWhatItWaitsForAndWhatItHolds) {
  spawn_all(parts(two_units()));
  actors().begin_step(Step{1}, StepKind::train, 0.5, true);
  run();
  lane(LaneKind::disk).finish_one();
  clock.advance(Nanos{2'000'000});
  actors().inspect_all();
  run();
  const auto answers = post.kept<schema::Inspection>();
  ASSERT_EQ(answers.size(), 5U);
  for (const auto& answer : answers) {
    const std::string waiting = answer.body().getWaiting().cStr(), text = answer.body().getText().cStr();
    if (answer.from().actor == ActorKind::compute) {
      EXPECT_EQ(waiting, "weights of L0, step 1");
    }
    if (answer.from().actor == ActorKind::sharding) {
      EXPECT_THAT(waiting, HasSubstr("a free slot of weights for gather L1 (backward), step 1"));
      EXPECT_THAT(text, HasSubstr("weights: 2 of 2 slots out, slot 0 for 2.0 ms"));
      EXPECT_THAT(text, HasSubstr("step 1 comm 2 of 7"));
      EXPECT_EQ(answer.body().getLeasesOut(), 2U);
    }
  }
}

TEST_F(RankTest, AllocatesExactlyTheMemoryThatItAnnounces) {
  const RankParts given = parts(two_units(), {}, true);
  const EdgeLayout layout = edge_layout_of(given);
  EXPECT_THAT(layout.describe(), HasSubstr("weights    2 × 256 B = 512 B (device)"));
  spawn_all(given);
  EXPECT_EQ(actors().memory().allocated_bytes(), layout.device_bytes + layout.host_bytes);
}

TEST_F(RankTest, RefusesIncompletePartsByName) {
  RankParts given = parts(two_units());
  given.lanes[0] = nullptr;
  EXPECT_THAT([&] { (void)spawn_rank(given); },
              testing::ThrowsMessage<std::invalid_argument>(HasSubstr("rank 0: a device, or one of the six lanes, is missing")));
}

TEST_F(RankTest, CutsACauseThatWouldNotFitIntoALetterBetweenProcesses) {
  spawn_all(parts(two_units()));
  actors().begin_step(Step{1}, StepKind::train, 0.5, true);
  run();
  lane(LaneKind::comm).fail_one("the first words, " + std::string(20000, 'x'));
  run();
  const auto faults = post.kept<schema::FaultReport>();
  ASSERT_EQ(faults.size(), 1U);
  const std::string cause = faults[0].body().getCause().cStr();
  EXPECT_LE(cause.size(), longest_cause);
  EXPECT_THAT(cause, testing::StartsWith("the first words, xxx"));
  EXPECT_THAT(cause, testing::EndsWith("x … (cut)"));
  EXPECT_LE(faults[0].parcel()->bytes().size() + frame_header_bytes + frame_mac_bytes, max_frame_bytes);
}

TEST_F(RankTest, CutsNoCharacterInTwo) {
  EXPECT_EQ(cut_text("short", 16), "short");
  EXPECT_EQ(cut_text("aaaa\u00e9aaaaaaaaaaaaaaaa", 15), "aaaa … (cut)") << "the two bytes of é would not both fit";
}

}  // namespace
}  // namespace troupe
