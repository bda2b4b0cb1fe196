#include <gmock/gmock.h>

#include "actors/step_observer.hpp"
#include "tests/support/actor_fixture.hpp"

/// Each actor alone: the test plays all others.
namespace troupe {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class AloneTest : public ActorFixture {
 protected:
  void batch_ready(const RankParts& of, Step step, Lease lease = {}) {
    deliver<schema::BatchReady>(
        ActorKind::compute, step, find(*of.plans, OperationKind::load),
        [](auto body) {
          body.setTokens(10);
          body.setDigest(5);
        },
        std::move(lease));
  }
};

TEST_F(AloneTest, DataLoaderSendsTheBatchWithItsLeaseWhenTheLoadIsDone) {
  spawn_alone(ActorKind::data_loader, parts(two_units()));
  begin(ActorKind::data_loader, Step{1});
  run();
  EXPECT_EQ(post.count(LetterKind::BATCH_READY), 0U) << "nothing leaves before its work is done";
  lane(LaneKind::disk).finish_one();
  const auto batches = post.kept<schema::BatchReady>();
  ASSERT_EQ(batches.size(), 1U);
  EXPECT_EQ(batches[0].body().getTokens(), 10U);
  EXPECT_EQ(batches[0].body().getDigest(), 100U);
  EXPECT_EQ(batches[0].to(), (ActorAddress{rank, ActorKind::compute}));
  EXPECT_TRUE(batches[0].lease());
}

TEST_F(AloneTest, ComputeWaitsForBatchAndWeightsInEitherOrder) {
  const RankParts given = parts(two_units());
  spawn_alone(ActorKind::compute, given);
  // Letters of a step may overtake its StepBegin.
  deliver<schema::WeightsGathered>(ActorKind::compute, Step{1}, find(*given.plans, OperationKind::gather), lease_of_the_test());
  run();
  begin(ActorKind::compute, Step{1});
  run();
  EXPECT_FALSE(lane(LaneKind::compute).busy());
  batch_ready(given, Step{1}, lease_of_the_test());
  run();
  ASSERT_TRUE(lane(LaneKind::compute).busy());
  EXPECT_EQ(home, 0);
  lane(LaneKind::compute).finish_one();
  EXPECT_EQ(home, 1) << "the weights go home with their last reader, the batch stays for the backward";
}

TEST_F(AloneTest, ComputeTellsHowLongItWaitedForABatch) {
  const RankParts given = parts(two_units());
  spawn_alone(ActorKind::compute, given);
  begin(ActorKind::compute, Step{1});
  run();
  clock.advance(Nanos{7000});
  batch_ready(given, Step{1}, lease_of_the_test());
  for (const auto& [unit, backward] : {std::pair{0U, false}, {1U, false}, {1U, true}, {0U, true}}) {
    deliver<schema::WeightsGathered>(ActorKind::compute, Step{1}, find(*given.plans, OperationKind::gather, unit, backward), lease_of_the_test());
  }
  run_to_the_end();
  const auto micro_batches = post.kept<schema::MicroBatchDone>();
  ASSERT_EQ(micro_batches.size(), 1U);
  EXPECT_EQ(micro_batches[0].body().getWaitBatchNanos(), 7000U);
  EXPECT_EQ(home, 5);
}

TEST_F(AloneTest, ShardingDropsAnOlderEpochsLetters) {
  const RankParts given = parts(two_units());
  spawn_alone(ActorKind::sharding, given);
  send<schema::StepBegin>(runtime, Heading{{rank, ActorKind::sharding}, {rank, ActorKind::supervisor}, Where{EpochId{2}, Step{1}, {}, {}}, {}, Nanos{0}, 0},
                          [](auto) {});
  run();
  EXPECT_FALSE(lane(LaneKind::comm).busy());
  begin(ActorKind::sharding, Step{1});
  run();
  EXPECT_TRUE(lane(LaneKind::comm).busy());
}

TEST_F(AloneTest, ShardingReportsAnExceptionOfAHandlerWithItsText) {
  spawn_alone(ActorKind::sharding, parts(two_units()));
  deliver<schema::MicroBatchDone>(ActorKind::sharding, Step{9}, OperationIndex{0});
  run();
  const auto faults = post.kept<schema::FaultReport>();
  ASSERT_EQ(faults.size(), 1U);
  EXPECT_THAT(faults[0].body().getCause().cStr(), HasSubstr("sharding of rank 0, handling MicroBatchDone of step 9"));
  EXPECT_THAT(faults[0].body().getCause().cStr(), HasSubstr("step 9 has not begun, or was reported"));
}

TEST_F(AloneTest, ShardingCountsALetterThatIsNotForItAndGoesOn) {
  spawn_alone(ActorKind::sharding, parts(two_units()));
  deliver<schema::BatchReady>(ActorKind::sharding, Step{1});
  begin(ActorKind::sharding, Step{1});
  run();
  EXPECT_TRUE(lane(LaneKind::comm).busy());
  EXPECT_EQ(post.count(LetterKind::FAULT_REPORT), 0U);
}

TEST_F(AloneTest, ShardingIgnoresASlotThatComesHomeTwice) {
  PlanShape shape = two_units();
  shape.units.push_back(shape.units.back());
  spawn_alone(ActorKind::sharding, parts(shape));
  begin(ActorKind::sharding, Step{1});
  run();
  lane(LaneKind::comm).finish_one();
  for (int i = 0; i < 2; ++i) {
    deliver<schema::SlotHome>(ActorKind::sharding, Step{0}, OperationIndex{0}, [](auto body) {
      body.setEdge(static_cast<std::uint16_t>(EdgeKind::weights));
      body.setSlot(0);
      body.setGeneration(1);
    });
  }
  run();
  EXPECT_THAT(lane(LaneKind::comm).names(), ElementsAre("gather L0", "gather L1", "gather L2")) << "one slot came home, not two";
}

TEST_F(AloneTest, CheckpointTakesTheSnapshotOnlyWhenTheStateStands) {
  const RankParts given = parts(two_units(), {}, true);
  spawn_alone(ActorKind::checkpoint, given);
  begin(ActorKind::checkpoint, Step{1}, StepKind::train_and_snapshot);
  run();
  EXPECT_FALSE(lane(LaneKind::copy).busy());
  deliver<schema::StepReport>(ActorKind::checkpoint, Step{1}, find(*given.plans, OperationKind::optimize, 1));
  run();
  ASSERT_TRUE(lane(LaneKind::copy).busy());
  lane(LaneKind::copy).finish_one();
  EXPECT_EQ(post.count(LetterKind::SNAPSHOT_TAKEN), 1U);
  run();
  EXPECT_TRUE(lane(LaneKind::storage).busy());
}

TEST_F(AloneTest, CheckpointGoesThroughStepsWithoutASnapshot) {
  const RankParts given = parts(two_units(), {}, true);
  spawn_alone(ActorKind::checkpoint, given);
  for (const std::uint64_t step : {1U, 2U, 3U}) begin(ActorKind::checkpoint, Step{step});
  begin(ActorKind::checkpoint, Step{4}, StepKind::train_and_snapshot);
  deliver<schema::StepReport>(ActorKind::checkpoint, Step{4}, find(*given.plans, OperationKind::optimize, 1));
  run_to_the_end();
  EXPECT_THAT(programs.calls, ElementsAre("snapshot", "save"));
}

struct Onlooker final : StepObserver {
  void step_ended(Step step) override { ended.push_back(step.value()); }
  bool wants_holders(Step step) override { return step == Step{2}; }
  void holders(Step step, std::span<const std::pair<ActorKind, std::string>> answers) override {
    for (const auto& [actor, text] : answers) told[{step.value(), actor}] = text;
  }
  std::vector<std::uint64_t> ended;
  std::map<std::pair<std::uint64_t, ActorKind>, std::string> told;
};

TEST_F(AloneTest, MetricsTellsTheOnlookerOfEachStepAndAsksTheOthersWhatTheyHold) {
  RankParts given = parts(two_units());
  const auto onlooker = std::make_shared<Onlooker>();
  given.observer = onlooker;
  spawn_alone(ActorKind::metrics, given);
  for (const std::uint64_t step : {1U, 2U, 3U}) deliver<schema::StepReport>(ActorKind::metrics, Step{step}, OperationIndex{0});
  run();
  EXPECT_THAT(onlooker->ended, ElementsAre(1, 2, 3));
  EXPECT_EQ(post.kept<schema::Inspect>().size(), 4U);
  for (const ActorKind actor : {ActorKind::data_loader, ActorKind::compute, ActorKind::sharding, ActorKind::checkpoint}) {
    EXPECT_TRUE(onlooker->told.empty()) << "the picture is one";
    deliver<schema::Inspection>(ActorKind::metrics, Step{2}, OperationIndex{0}, [&](auto body) { body.setText(name_of(actor)); }, {}, actor);
    run();
  }
  EXPECT_EQ(onlooker->told.at({2, ActorKind::sharding}), "sharding");
  EXPECT_EQ(onlooker->told.size(), 4U);
}

}  // namespace
}  // namespace troupe
