#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "src/plan/compiler.hpp"

namespace troupe {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

PlanShape shape_of(std::size_t units, std::uint32_t micro_batches = 1) {
  PlanShape shape;
  shape.micro_batches = micro_batches;
  for (std::size_t i = 0; i < units; ++i) shape.units.push_back({.gather_bytes = 1000 + i, .reduce_bytes = 2000 + i});
  return shape;
}

SlotCounts slots_of(std::uint32_t weights, std::uint32_t gradients) {
  SlotCounts slots;
  slots.weights = weights;
  slots.gradients = gradients;
  return slots;
}

Plan plan_of(const PlanShape& shape, const SlotCounts& slots = {}, StepKind kind = StepKind::train) { return compile_plan(shape, slots, kind).value(); }

std::vector<std::string> names_on(const Plan& plan, LaneKind lane) {
  std::vector<std::string> names;
  for (const PlannedOperation& operation : plan.operations) {
    if (operation.lane == lane) names.push_back(operation.name());
  }
  return names;
}

std::size_t place(const Plan& plan, const std::string& name) {
  const auto found = std::find_if(plan.operations.begin(), plan.operations.end(), [&](const PlannedOperation& operation) { return operation.name() == name; });
  EXPECT_NE(found, plan.operations.end()) << name;
  return static_cast<std::size_t>(found - plan.operations.begin());
}

TEST(Plan, CommunicatesInTheOrderThatPrefetchesBeforeItReduces) {
  EXPECT_THAT(names_on(plan_of(shape_of(3)), LaneKind::comm), ElementsAre("gather L0", "gather L1", "gather L2", "gather L2 (backward)", "gather L1 (backward)",
                                                                          "reduce L2", "gather L0 (backward)", "reduce L1", "reduce L0", "verdict"));
}

TEST(Plan, ReducesFirstWhenAskedTo) {
  PlanShape shape = shape_of(2);
  shape.prefetch_before_reduce = false;
  EXPECT_THAT(names_on(plan_of(shape), LaneKind::comm),
              ElementsAre("gather L0", "gather L1", "gather L1 (backward)", "reduce L1", "gather L0 (backward)", "reduce L0", "verdict"));
}

TEST(Plan, NeitherGathersForABackwardWithoutWeightsNorTwiceForTheLastUnit) {
  PlanShape shape = shape_of(3);
  shape.units.front().backward_needs_weights = false;
  shape.units.back().keeps_weights_for_backward = true;
  const Plan plan = plan_of(shape);
  EXPECT_THAT(names_on(plan, LaneKind::comm),
              ElementsAre("gather L0", "gather L1", "gather L2", "gather L1 (backward)", "reduce L2", "reduce L1", "reduce L0", "verdict"));
  const PlannedOperation& backward = plan.operations[place(plan, "backward L2")];
  EXPECT_THAT(backward.last_reads, ElementsAre(OperationIndex{static_cast<std::uint32_t>(place(plan, "gather L2"))}));
}

TEST(Plan, GathersResidentWeightsOnceForAllMicroBatches) {
  PlanShape shape = shape_of(2, 2);
  shape.weights_resident = true;
  EXPECT_THAT(names_on(plan_of(shape), LaneKind::comm),
              ElementsAre("gather L0", "gather L1", "reduce L1", "reduce L0", "reduce L1 m1", "reduce L0 m1", "verdict"));
}

TEST(Plan, SumsMicroBatchesAndReducesWithTheLastWhenAskedTo) {
  PlanShape shape = shape_of(2, 3);
  shape.reduce_last = true;
  shape.weights_resident = true;
  const Plan plan = plan_of(shape);
  EXPECT_THAT(names_on(plan, LaneKind::comm), ElementsAre("gather L0", "gather L1", "accumulate L1", "accumulate L0", "accumulate L1 m1", "accumulate L0 m1",
                                                          "reduce L1 m2", "reduce L0 m2", "verdict"));
  const PlannedOperation& sum = plan.operations[place(plan, "accumulate L0 m1")];
  EXPECT_EQ(sum.communicator, CommunicatorKind::none) << "nothing leaves the rank";
  EXPECT_THAT(sum.last_reads, ElementsAre(OperationIndex{static_cast<std::uint32_t>(place(plan, "backward L0 m1"))}));
}

TEST(Plan, SumsOverReplicasOnceAStepBehindTheLastReduceOfEachUnitAndBeforeTheVerdict) {
  PlanShape shape = shape_of(2, 2);
  shape.replicas = 2;
  shape.weights_resident = true;
  for (UnitShape& unit : shape.units) unit.all_reduce_bytes = 100;
  const Plan plan = plan_of(shape);
  EXPECT_THAT(names_on(plan, LaneKind::comm), ElementsAre("gather L0", "gather L1", "reduce L1", "reduce L0", "reduce L1 m1", "all_reduce L1 m1",
                                                          "reduce L0 m1", "all_reduce L0 m1", "verdict"));
  const PlannedOperation& sum = plan.operations[place(plan, "all_reduce L0 m1")];
  EXPECT_EQ(sum.communicator, CommunicatorKind::dp_replicate);
  EXPECT_EQ(sum.bytes, 100U);
  EXPECT_THAT(plan.operations[place(plan, "verdict")].after, testing::Contains(OperationIndex{static_cast<std::uint32_t>(place(plan, "all_reduce L0 m1"))}));
  shape.units[0].all_reduce_bytes = 0;  // owns no parameter
  EXPECT_THAT(names_on(plan_of(shape), LaneKind::comm), testing::Not(testing::Contains("all_reduce L0 m1")));
  shape.units[0].all_reduce_bytes = 101;
  EXPECT_NE(plan_of(shape).hash(CommunicatorKind::dp_replicate), plan.hash(CommunicatorKind::dp_replicate));
  EXPECT_EQ(plan_of(shape).hash(CommunicatorKind::dp_shard), plan.hash(CommunicatorKind::dp_shard));
}

TEST(Plan, StepsEachUnitInTheBackwardPassBehindAVerdictOfItsOwnWhenAskedTo) {
  PlanShape shape = shape_of(4);
  shape.step_in_backward = true;
  shape.weights_resident = true;
  const Plan plan = plan_of(shape, slots_of(4, 2), StepKind::train_and_snapshot);
  EXPECT_THAT(names_on(plan, LaneKind::comm), ElementsAre("gather L0", "gather L1", "gather L2", "gather L3", "reduce L3", "verdict L3", "reduce L2",
                                                          "verdict L2", "reduce L1", "verdict L1", "reduce L0", "verdict"));
  EXPECT_THAT(names_on(plan, LaneKind::optimizer), ElementsAre("optimize L3", "optimize L2", "optimize L1", "optimize L0"));
  const auto at = [&](const std::string& name) { return OperationIndex{static_cast<std::uint32_t>(place(plan, name))}; };
  EXPECT_THAT(plan[at("optimize L3")].after, ElementsAre(at("verdict L3")));
  EXPECT_THAT(plan[at("optimize L3")].after_previous, ElementsAre(Fact{OperationKind::snapshot, {}, {}, false}))
      << "a copy of the state comes before all writing";
  EXPECT_THAT(plan[at("reduce L1")].after, ElementsAre(at("backward L1"), at("optimize L3"))) << "whose gradients lie in the same place";
  EXPECT_THAT(plan[at("snapshot")].after, ElementsAre(at("optimize L0")));
  EXPECT_THAT(plan[at("gather L0")].after_previous, ElementsAre(Fact{OperationKind::optimize, Unit{0}, {}, false}));
  EXPECT_LT(at("optimize L3"), at("reduce L1")) << "while the backward pass goes on";
}

TEST(Plan, RefusesToStepInTheBackwardPassWhereGradientsAreReducedWithEachMicroBatch) {
  PlanShape shape = shape_of(2, 2);
  shape.step_in_backward = true;
  const Result<Plan> plan = compile_plan(shape, SlotCounts{}, StepKind::train);
  ASSERT_FALSE(plan.ok());
  EXPECT_THAT(plan.error().message, HasSubstr("reduced with each of the 2 micro-batches: sum them and reduce with the last"));
  shape.reduce_last = true;
  EXPECT_THAT(names_on(plan_of(shape), LaneKind::optimizer), ElementsAre("optimize L1", "optimize L0"));
}

TEST(Plan, RefusesResidencyWithTooFewSlotsAndSaysSo) {
  PlanShape shape = shape_of(3);
  shape.weights_resident = true;
  const Result<Plan> plan = compile_plan(shape, slots_of(2, 2), StepKind::train);
  ASSERT_FALSE(plan.ok());
  EXPECT_THAT(plan.error().message, HasSubstr("each of the 3 units, but [slots] weights = 2"));
}

TEST(Plan, NamesTheEdgeWhenNoOrderCanFinish) {
  PlanShape shape = shape_of(3);
  shape.units[1].keeps_weights_for_backward = true;  // holds the only slot while unit 2 needs one
  const Result<Plan> plan = compile_plan(shape, slots_of(1, 1), StepKind::train);
  ASSERT_FALSE(plan.ok());
  EXPECT_THAT(plan.error().message, HasSubstr("gather L2 waits for ever for one of the 1 slots of weights"));
}

TEST(Plan, PutsTheReduceBeforeTheBackwardThatTakesItsSlotAndTheGatherBehindTheReaderThatFreesIts) {
  const Plan plan = plan_of(shape_of(6), slots_of(2, 2));
  EXPECT_LT(place(plan, "reduce L5"), place(plan, "backward L3"));
  EXPECT_LT(place(plan, "forward L1"), place(plan, "gather L3"));
  EXPECT_LT(place(plan, "backward L4"), place(plan, "reduce L5")) << "the backward queues behind running work, the reduce waits for it";
}

TEST(Plan, SnapshotsWhenTheStateStandsAndHoldsTheNextOptimizerBack) {
  const Plan plan = plan_of(shape_of(2), {}, StepKind::train_and_snapshot);
  EXPECT_THAT(plan.operations[place(plan, "snapshot")].after, ElementsAre(OperationIndex{static_cast<std::uint32_t>(place(plan, "optimize L1"))}));
  EXPECT_THAT(plan.operations[place(plan, "save")].last_reads, ElementsAre(OperationIndex{static_cast<std::uint32_t>(place(plan, "snapshot"))}));
  EXPECT_THAT(plan.operations[place(plan, "optimize L0")].after_previous, ElementsAre(Fact{OperationKind::snapshot, {}, {}, false}));
  EXPECT_THAT(plan.operations[place(plan, "verdict")].after_previous, ElementsAre(Fact{OperationKind::optimize, Unit{1}, {}, false}));
}

TEST(Plan, BeginsTheNextStepUnderTheOptimizerOfLaterUnits) {
  PlanShape shape = shape_of(3);
  shape.units[1].scales_bytes = 28;
  const Plan plan = plan_of(shape);
  EXPECT_THAT(names_on(plan, LaneKind::comm), ElementsAre("gather L0", "scales L1", "gather L1", "gather L2", "gather L2 (backward)", "gather L1 (backward)",
                                                          "reduce L2", "gather L0 (backward)", "reduce L1", "reduce L0", "verdict"));
  for (std::uint32_t u = 0; u < 3; ++u) {
    const PlannedOperation& gather = plan.operations[place(plan, "gather L" + std::to_string(u))];
    EXPECT_THAT(gather.after_previous, ElementsAre(Fact{OperationKind::optimize, Unit{u}, {}, false})) << u;
  }
  const PlannedOperation& scales = plan.operations[place(plan, "scales L1")];
  EXPECT_THAT(scales.after_previous, ElementsAre(Fact{OperationKind::optimize, Unit{1}, {}, false}));
  EXPECT_EQ(scales.bytes, 28U);
  EXPECT_THAT(plan.operations[place(plan, "gather L1")].after, ElementsAre(OperationIndex{static_cast<std::uint32_t>(place(plan, "scales L1"))}));
  EXPECT_THAT(plan.operations[place(plan, "gather L0")].after, testing::IsEmpty()) << "no weight of it travels in fp8";
}

TEST(Plan, EvaluatesThroughScalesOfTheNewWeights) {
  PlanShape shape = shape_of(2);
  shape.units[1].scales_bytes = 4;
  shape.evaluation_batches = 2;
  const Plan plan = plan_of(shape, {}, StepKind::train_and_evaluate);
  const auto at = [&](const std::string& name) { return OperationIndex{static_cast<std::uint32_t>(place(plan, name))}; };
  EXPECT_THAT(plan[at("scales L1 m1")].after, ElementsAre(at("optimize L1")));
  EXPECT_THAT(plan[at("gather L0 m1")].after, ElementsAre(at("optimize L1")));
  EXPECT_THAT(plan[at("gather L1 m2")].after, ElementsAre(at("scales L1 m1")));
}

TEST(Plan, HashTellsAByteCountAndAnOrderApartAndNothingElse) {
  PlanShape shape = shape_of(3);
  const std::uint64_t before = plan_of(shape).hash(CommunicatorKind::dp_shard);
  shape.units[1].forward = Nanos{5};
  EXPECT_EQ(plan_of(shape).hash(CommunicatorKind::dp_shard), before) << "costs are estimates of one rank";
  shape.units[1].reduce_bytes += 1;
  EXPECT_NE(plan_of(shape).hash(CommunicatorKind::dp_shard), before);
  shape = shape_of(3);
  shape.prefetch_before_reduce = false;
  EXPECT_NE(plan_of(shape).hash(CommunicatorKind::dp_shard), before);
}

TEST(PlanCheck, PassesEveryCompiledPlanAtEverySlotCount) {
  for (const std::uint32_t weights : {1U, 2U, 3U, 8U}) {
    for (const std::uint32_t gradients : {1U, 2U, 3U}) {
      for (const std::uint32_t micro_batches : {1U, 3U}) {
        for (const bool prefetch : {true, false}) {
          PlanShape shape = shape_of(5, micro_batches);
          shape.prefetch_before_reduce = prefetch;
          for (UnitShape& unit : shape.units) unit.scales_bytes = 4;
          shape.units.front().backward_needs_weights = false;
          shape.units.back().keeps_weights_for_backward = true;
          SlotCounts slots = slots_of(weights, gradients);
          slots.batches = gradients;
          slots.snapshots = 1;
          const Plan plan = plan_of(shape, slots, StepKind::train_and_snapshot);
          const Result<void> checked = check_plans({plan, plan, plan}, slots);
          EXPECT_TRUE(checked.ok()) << checked.error().message;
        }
      }
    }
  }
}

TEST(PlanCheck, PassesEveryWayOfDataParallelismOnTheGroupsOfItsMesh) {
  for (const std::uint32_t replicas : {1U, 2U, 4U}) {
    for (const bool reduce_last : {false, true}) {
      for (const bool resident : {false, true}) {
        PlanShape shape = shape_of(4, 3);
        for (UnitShape& unit : shape.units) unit.all_reduce_bytes = 10;
        shape.replicas = replicas;
        shape.reduce_last = reduce_last;
        shape.weights_resident = resident;
        const SlotCounts slots = slots_of(resident ? 4 : 1, 1);
        const Plan plan = plan_of(shape, slots, StepKind::train_and_snapshot);
        const Result<void> checked = check_plans(std::vector<Plan>(4, plan), slots, replicas);
        EXPECT_TRUE(checked.ok()) << checked.error().message;
      }
    }
  }
}

TEST(PlanCheck, MeetsInGroupsAndNamesTheRanksOfTheOneThatDiffers) {
  PlanShape shape = shape_of(2);
  for (UnitShape& unit : shape.units) unit.all_reduce_bytes = 10;
  shape.replicas = 2;
  PlanShape other = shape;
  other.units[1].all_reduce_bytes = 12;
  const std::vector<Plan> plans{plan_of(shape), plan_of(shape), plan_of(shape), plan_of(other)};  // shards 0, 1 of replica 0, then of 1
  const Result<void> checked = check_plans(plans, SlotCounts{}, 2);
  ASSERT_FALSE(checked.ok());
  EXPECT_THAT(checked.error().message,
              HasSubstr("communicator dp_replicate: where rank 1 calls all_reduce L1 (10 bytes, float32), rank 3 calls all_reduce L1 (12"));
  EXPECT_THAT(check_plans(std::vector<Plan>(3, plans[0]), SlotCounts{}, 2).error().message, HasSubstr("3 ranks are no multiple of 2 replicas"));
}

TEST(PlanCheck, NamesTheEdgeItsSlotsAndWhoWaitsOnEachRank) {
  const Plan plan = plan_of(shape_of(4), slots_of(3, 2));
  const Result<void> checked = check_plans({plan, plan}, slots_of(1, 2));  // compiled for three slots, run with one
  ASSERT_FALSE(checked.ok());
  EXPECT_THAT(checked.error().message, HasSubstr("edge weights with 1 slots"));
  EXPECT_THAT(checked.error().message, HasSubstr("rank 0: gather L1 of step 1 waits for a free slot of weights"));
  EXPECT_THAT(checked.error().message, HasSubstr("rank 1: gather L1 of step 1 waits for a free slot of weights"));
}

TEST(PlanCheck, NamesBothCallsWhenRanksDiffer) {
  PlanShape other = shape_of(3);
  other.units[2].gather_bytes = 7;
  const Result<void> checked = check_plans({plan_of(shape_of(3)), plan_of(other)}, SlotCounts{});
  ASSERT_FALSE(checked.ok());
  EXPECT_THAT(checked.error().message,
              HasSubstr("communicator dp_shard: where rank 0 calls gather L2 (1002 bytes, bfloat16), rank 1 calls gather L2 (7 bytes, bfloat16)"));
}

TEST(PlanCheck, FindsADeadlockThatOnlyTwoRanksTogetherHave) {
  const Plan plan = plan_of(shape_of(2));
  Plan swapped = plan;  // its verdict waits for a reduce that stands behind it on the same lane
  const std::size_t verdict = place(plan, "verdict"), reduce = place(plan, "reduce L0");
  std::swap(swapped.operations[verdict].communicator, swapped.operations[reduce].communicator);
  const Result<void> checked = check_plans({plan, swapped}, SlotCounts{});
  ASSERT_FALSE(checked.ok());
  EXPECT_THAT(checked.error().message, HasSubstr("rank 1: reduce L0 of step 1 waits for the other ranks on world"));
}

TEST(PlanCheck, RunsTwoStepsSoThatALeakedSlotShows) {
  Plan plan = plan_of(shape_of(2), {}, StepKind::train_and_snapshot);
  plan.operations[place(plan, "save")].last_reads.clear();  // the snapshot's slot never goes home
  const Result<void> checked = check_plans({plan}, SlotCounts{});
  ASSERT_FALSE(checked.ok());
  EXPECT_THAT(checked.error().message, HasSubstr("snapshot of step 2 waits for a free slot of snapshots"));
}

TEST(PlanCheck, FindsADeadlockThatOnlyTwoStepKindsTogetherHave) {
  Plan train = plan_of(shape_of(2));
  const Plan snapshots = plan_of(shape_of(2), {}, StepKind::train_and_snapshot);
  train.operations[place(train, "optimize L1")].takes = EdgeKind::snapshots;  // and nobody reads it: its slot never goes home
  SlotCounts slots;
  slots.snapshots = 2;
  EXPECT_TRUE(check_plans({train, train}, slots).ok()) << "two steps have two slots";
  EXPECT_TRUE(check_plans({snapshots, snapshots}, slots).ok());
  EXPECT_TRUE(check_plans({{snapshots, train, snapshots}, {snapshots, train, snapshots}}, slots).ok());
  const Result<void> checked = check_plans({{train, train, snapshots}, {train, train, snapshots}}, slots);
  ASSERT_FALSE(checked.ok());
  EXPECT_THAT(checked.error().message, HasSubstr("edge snapshots with 2 slots"));
  EXPECT_THAT(checked.error().message, HasSubstr("rank 1: snapshot of step 3 waits for a free slot of snapshots"));
}

}  // namespace
}  // namespace troupe
