#include "actors/horizon.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

StepPolicy policy(std::uint64_t last) {
  StepPolicy policy;
  policy.last_step = Step{last};
  policy.learning_rate = [](Step step) { return 0.5 * static_cast<double>(step.value()); };
  policy.snapshot_due = [last](Step step) { return step.value() % 4 == 0 || step.value() == last; };
  return policy;
}

std::vector<std::uint64_t> steps_of(const std::vector<StepGrant>& grants) {
  std::vector<std::uint64_t> steps;
  steps.reserve(grants.size());
  for (const StepGrant& grant : grants) steps.push_back(grant.step.value());
  return steps;
}

TEST(Horizon, GrantsEachStepOnceWithItsRateKindAndEnd) {
  HorizonBook book(policy(5), Step{0});
  auto grants = book.advance(Step{0});
  EXPECT_EQ(steps_of(grants), (std::vector<std::uint64_t>{1, 2}));
  EXPECT_DOUBLE_EQ(grants[1].learning_rate, 1.0);
  EXPECT_EQ(grants[1].kind, StepKind::train);
  EXPECT_TRUE(book.advance(Step{0}).empty());
  grants = book.advance(Step{2});
  EXPECT_EQ(steps_of(grants), (std::vector<std::uint64_t>{3, 4}));
  EXPECT_EQ(grants[1].kind, StepKind::train_and_snapshot);
  EXPECT_FALSE(grants[1].last);
  grants = book.advance(Step{4});
  EXPECT_EQ(steps_of(grants), (std::vector<std::uint64_t>{5}));
  EXPECT_TRUE(grants[0].last);
  EXPECT_TRUE(book.advance(Step{5}).empty());
}

// B098: what waits for a checkpoint is not taken for a hang
TEST(Horizon, WhereSavesAreWaitedForNoStepIsGrantedMeanwhile) {
  StepPolicy waiting = policy(8);
  waiting.wait_for_saves = true;
  HorizonBook book(waiting, Step{2});
  EXPECT_EQ(steps_of(book.advance(Step{2})), (std::vector<std::uint64_t>{3, 4})) << "step 4 is saved: no further";
  EXPECT_TRUE(book.advance(Step{3}, true).empty());
  EXPECT_FALSE(book.waits(Step{3}, true)) << "step 4 is still trained";
  EXPECT_TRUE(book.waits(Step{4}, true));
  EXPECT_TRUE(book.advance(Step{4}, true).empty());
  EXPECT_EQ(steps_of(book.advance(Step{4}, false)), (std::vector<std::uint64_t>{5, 6}));
  waiting.wait_for_saves = false;
  HorizonBook beside(waiting, Step{2});
  (void)beside.advance(Step{2});
  EXPECT_EQ(steps_of(beside.advance(Step{3}, true)), (std::vector<std::uint64_t>{5}));
  EXPECT_FALSE(beside.waits(Step{4}, true));
}

TEST(Horizon, ValidationIsDueAfterAnyKindOfStep) {
  StepPolicy validating = policy(6);
  validating.evaluation_due = [](Step step) { return step.value() % 2 == 0; };
  HorizonBook book(validating, Step{2});
  const auto grants = book.advance(Step{3});
  ASSERT_EQ(grants.size(), 3U);
  EXPECT_EQ(grants[0].kind, StepKind::train);
  EXPECT_EQ(grants[1].kind, StepKind::train_snapshot_and_evaluate);
  EXPECT_EQ(grants[2].kind, StepKind::train);
}

TEST(Horizon, StopTakesEffectAtTheFirstStepNotYetGranted) {
  HorizonBook book(policy(100), Step{0});
  (void)book.advance(Step{0});
  EXPECT_EQ(book.stop(), Step{3});
  EXPECT_EQ(book.stop(), Step{3}) << "asked twice";
  const auto grants = book.advance(Step{1});
  ASSERT_EQ(steps_of(grants), (std::vector<std::uint64_t>{3}));
  EXPECT_TRUE(grants[0].last);
  EXPECT_EQ(grants[0].kind, StepKind::train_and_snapshot);
}

TEST(Horizon, StopWithoutCheckpointsSavesNothing) {
  auto without = policy(100);
  without.save_at_stop = false;
  without.snapshot_due = [](Step) { return false; };
  HorizonBook book(without, Step{0});
  (void)book.advance(Step{0});
  (void)book.stop();
  EXPECT_EQ(book.advance(Step{2}).front().kind, StepKind::train);
}

TEST(Horizon, StopOnceTheLastStepIsGrantedChangesNothing) {
  HorizonBook book(policy(2), Step{0});
  EXPECT_EQ(steps_of(book.advance(Step{0})), (std::vector<std::uint64_t>{1, 2}));
  EXPECT_EQ(book.stop(), Step{2});
  EXPECT_TRUE(book.advance(Step{2}).empty());
}

TEST(Horizon, TheLastStepMayMoveBeforeItIsGranted) {
  StepPolicy moving = policy(4);
  moving.last_at = [](Step step) { return Step{step < Step{3} ? 4U : 6U}; };
  moving.snapshot_due = [](Step step) { return step == Step{6}; };
  HorizonBook book(moving, Step{0});
  (void)book.advance(Step{0});
  auto grants = book.advance(Step{2});
  EXPECT_EQ(steps_of(grants), (std::vector<std::uint64_t>{3, 4}));
  EXPECT_FALSE(grants[1].last);
  grants = book.advance(Step{4});
  EXPECT_EQ(steps_of(grants), (std::vector<std::uint64_t>{5, 6}));
  EXPECT_TRUE(grants[1].last);
  EXPECT_TRUE(book.advance(Step{6}).empty());
  book.rewind(Step{1});
  EXPECT_EQ(steps_of(book.advance(Step{1})), (std::vector<std::uint64_t>{2, 3})) << "a replay ends where the run did";
}

TEST(Horizon, AStopDuringAReplayEndsWithTheNewestStepThoughTheLastWasAnEarlierOneThen) {
  StepPolicy moving = policy(4);
  moving.last_at = [](Step step) { return Step{step < Step{3} ? 4U : 9U}; };
  moving.snapshot_due = [](Step) { return false; };
  HorizonBook book(moving, Step{0});
  for (const std::uint64_t reported : {0U, 2U, 4U}) (void)book.advance(Step{reported});
  ASSERT_EQ(book.granted(), Step{6});
  book.rewind(Step{0});
  (void)book.advance(Step{0});
  EXPECT_EQ(book.last_step(), Step{9});
  EXPECT_EQ(book.stop(), Step{6});
  EXPECT_TRUE(book.saves(Step{6})) << "who stops asks for a checkpoint";
}

TEST(Horizon, AStopIsNotMovedByAChange) {
  StepPolicy moving = policy(100);
  moving.last_at = [](Step) { return Step{100}; };
  HorizonBook book(moving, Step{0});
  (void)book.advance(Step{0});
  EXPECT_EQ(book.stop(), Step{3});
  const auto grants = book.advance(Step{2});
  EXPECT_EQ(steps_of(grants), (std::vector<std::uint64_t>{3}));
  EXPECT_TRUE(grants[0].last);
}

TEST(Horizon, NothingIsGrantedPastALimit) {
  HorizonBook book(policy(100), Step{0});
  EXPECT_EQ(steps_of(book.advance(Step{0}, false, Step{1})), (std::vector<std::uint64_t>{1}));
  EXPECT_TRUE(book.advance(Step{1}, false, Step{1}).empty());
  EXPECT_EQ(steps_of(book.advance(Step{1}, false, Step{9})), (std::vector<std::uint64_t>{2, 3}));
}

}  // namespace
}  // namespace troupe
