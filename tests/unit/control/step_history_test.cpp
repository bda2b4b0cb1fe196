#include "actors/step_history.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

namespace troupe {
namespace {

StepRecord record(std::uint64_t step, double loss) {
  StepRecord made;
  made.epoch = EpochId{1};
  made.step = Step{step};
  made.common.outcome = VerdictOutcome::commit;
  made.common.loss = loss;
  made.common.grad_norm = 1.5;
  made.common.digest = step * 31;
  made.total_tokens = step * 100;
  return made;
}

TEST(StepHistory, AStepIsNewsOnceAndItsReplayIsCompared) {
  StepHistory history(Step{0}, 0);
  EXPECT_TRUE(history.add(record(1, 2.5)).fresh);
  EXPECT_TRUE(history.add(record(2, 2.25)).fresh);
  const auto again = history.add(record(2, 2.25));
  EXPECT_FALSE(again.fresh);
  EXPECT_EQ(again.difference, "");
  EXPECT_EQ(history.newest(), Step{2});
}

TEST(StepHistory, AReplayThatDiffersByOneBitSaysInWhat) {
  StepHistory history(Step{0}, 0);
  (void)history.add(record(1, 2.5));
  EXPECT_EQ(history.add(record(1, std::nextafter(2.5, 3.0))).difference, "loss 2.5 and 2.5000000000000004");
  StepRecord other_data = record(1, 2.5);
  other_data.common.digest = 7;
  EXPECT_EQ(history.add(other_data).difference, "data of digest 000000000000001f and 0000000000000007");
}

TEST(StepHistory, KnowsTheTokensOfEveryStepThatAnEpochMayBeginAfter) {
  StepHistory history(Step{10}, 1000);
  EXPECT_EQ(history.tokens_at(Step{10}), 1000U);
  for (std::uint64_t step = 11; step < 20; ++step) (void)history.add(record(step, 1.0));
  history.pin(Step{12});
  history.forget_before(Step{15});
  EXPECT_EQ(history.size(), 5U);
  EXPECT_EQ(history.tokens_at(Step{12}), 1200U) << "pinned";
  EXPECT_EQ(history.tokens_at(Step{15}), 1500U);
  EXPECT_EQ(history.tokens_at(Step{10}), 1000U);
  EXPECT_THROW((void)history.tokens_at(Step{14}), std::logic_error);
  EXPECT_FALSE(history.add(record(14, 9.0)).fresh) << "a replay of what is forgotten is no news";
}

}  // namespace
}  // namespace troupe
