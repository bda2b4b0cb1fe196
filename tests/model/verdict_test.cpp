#include <gtest/gtest.h>

#include <limits>
#include <mutex>

#include "tests/model/ranks.hpp"

namespace troupe::test {
namespace {

TrainingOptions two_ranks() {
  TrainingOptions o;
  o.batch = {1, 16};
  o.world = 2;
  return o;
}

float* weight(TrainingModel& model, const std::string& name) {
  for (const StateTensor& tensor : model.state()) {
    if (tensor.name == name) return tensor.view.as<float>();
  }
  throw std::out_of_range(name);
}

TEST(VerdictOfAStep, ANanSkipsTheStepOnAllRanksAndLeavesTheirStateBitForBit) {
  on_ranks(llama3("tiny"), two_ranks(), [&](RankContext& rank) {
    PlainStep plain(rank.model, rank.device, rank.communicator, deal(rank.model.options(), markov_rows(64)));
    (void)plain.run(EpochId{1}, Step{1}, 1e-3);
    float& poisoned = *weight(rank.model, "layers.1.feed_forward.w2.weight");
    const float healthy = poisoned;
    if (rank.rank == 1) poisoned = std::numeric_limits<float>::quiet_NaN();
    const auto before = state_bytes(rank.model);
    const StepNumbers skipped = plain.run(EpochId{1}, Step{2}, 1e-3);
    EXPECT_EQ(skipped.verdict.outcome, VerdictOutcome::skip);
    EXPECT_GT(skipped.verdict.bad, 0);
    EXPECT_EQ(state_bytes(rank.model), before);

    poisoned = healthy;
    const StepNumbers next = plain.run(EpochId{1}, Step{3}, 1e-3);
    EXPECT_EQ(next.verdict.outcome, VerdictOutcome::commit);
    EXPECT_EQ(next.verdict.bad, 0);
    EXPECT_NE(state_bytes(rank.model), before);
  });
}

TEST(VerdictOfAStep, AHaltedRankVoidsItsStepAndWritesNothing) {
  on_ranks(llama3("tiny"), two_ranks(), [&](RankContext& rank) {
    PlainStep plain(rank.model, rank.device, rank.communicator, deal(rank.model.options(), markov_rows(64)));
    rank.halt = 1;
    const auto before = state_bytes(rank.model);
    EXPECT_EQ(plain.run(EpochId{1}, Step{1}, 1e-3).verdict.outcome, VerdictOutcome::void_);
    EXPECT_EQ(state_bytes(rank.model), before);
  });
}

TEST(VerdictOfAStep, StepCountsOfAllParametersAdvanceWithCommitsAlone) {
  // Tied: the head's unit reads the embedding and must not step it a second time.
  on_ranks(llama3("tiny_tied"), two_ranks(), [&](RankContext& rank) {
    PlainStep plain(rank.model, rank.device, rank.communicator, deal(rank.model.options(), markov_rows(64)));
    for (std::uint64_t step = 1; step <= 3; ++step) (void)plain.run(EpochId{1}, Step{step}, 1e-3);
    for (const StateTensor& tensor : rank.model.state()) {
      if (tensor.name.starts_with("optimizer.step.")) {
        EXPECT_EQ(*tensor.view.as<std::int64_t>(), 3) << tensor.name;
      }
    }
  });
}

TEST(VerdictOfAStep, TheNormIsThatBeforeClippingAndTheUpdateThatAfter) {
  TrainingOptions clipped = two_ranks();
  clipped.max_norm = 0.1;
  const auto tight = train(llama3("tiny"), clipped, markov_rows(64), 1, 1e-3);
  const auto loose = train(llama3("tiny"), two_ranks(), markov_rows(64), 1, 1e-3);
  EXPECT_EQ(tight[0].verdict.grad_norm, loose[0].verdict.grad_norm);
  EXPECT_NEAR(tight[0].verdict.gradient_factor, 0.1 / (tight[0].verdict.grad_norm + 1e-6), 1e-6);
}

}  // namespace
}  // namespace troupe::test
