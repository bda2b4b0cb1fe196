#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "tests/model/ranks.hpp"

namespace troupe::test {
namespace {

/// Rows with the first `valid[row]` labels valid and the others ignored. `one_text`: all rows hold the first one's tokens.
FillRow with_valid_labels(std::vector<std::size_t> valid, bool one_text = false) {
  return [valid = std::move(valid), one_text, fill = markov_rows(64)](Step step, std::uint64_t row, std::span<std::int32_t> tokens,
                                                                      std::span<std::int32_t> labels) {
    fill(step, one_text ? 0 : row, tokens, labels);
    for (std::size_t i = valid.at(row); i < labels.size(); ++i) labels[i] = -100;
  };
}

TrainingOptions cut(std::uint32_t world, std::uint32_t micro_batches, std::uint32_t rows) {
  TrainingOptions o;
  o.batch = {rows, 16};
  o.micro_batches = micro_batches;
  o.world = world;
  return o;
}

void expect_same(const std::vector<StepNumbers>& found, const std::vector<StepNumbers>& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(found[i].verdict.tokens, expected[i].verdict.tokens);
    EXPECT_NEAR(found[i].verdict.mean_loss / expected[i].verdict.mean_loss, 1.0, 1e-5);
    EXPECT_NEAR(found[i].verdict.grad_norm / expected[i].verdict.grad_norm, 1.0, 1e-5);
  }
}

TEST(Normalisation, UnevenRowsWeighByTheirTokensHoweverTheBatchIsCut) {
  const FillRow rows = with_valid_labels({1, 9, 16, 3});
  const auto whole = train(llama3("tiny"), cut(1, 1, 4), rows, 3, 1e-3);
  EXPECT_EQ(whole[0].verdict.tokens, 29);
  expect_same(train(llama3("tiny"), cut(1, 4, 1), rows, 3, 1e-3), whole);
  expect_same(train(llama3("tiny"), cut(2, 2, 1), rows, 3, 1e-3), whole);
  expect_same(train(llama3("tiny"), cut(4, 1, 1), rows, 3, 1e-3), whole);
}

TEST(Normalisation, ARankWithoutValidTargetsGivesNothingAndTheStepGoesOn) {
  const auto alone = train(llama3("tiny"), cut(1, 1, 1), with_valid_labels({9}), 3, 1e-3);
  const auto beside_nothing = train(llama3("tiny"), cut(2, 1, 1), with_valid_labels({9, 0}), 3, 1e-3);
  expect_same(beside_nothing, alone);
  const auto micro_of_nothing = train(llama3("tiny"), cut(1, 4, 1), with_valid_labels({0, 9, 0, 0}, true), 3, 1e-3);
  expect_same(micro_of_nothing, alone);
}

TEST(Normalisation, AStepWithoutAnyValidTargetHasZeroLossAndNorm) {
  const auto nothing = train(llama3("tiny"), cut(1, 1, 1), with_valid_labels({0}), 2, 1e-3);
  for (const StepNumbers& step : nothing) {
    EXPECT_EQ(step.verdict.outcome, VerdictOutcome::commit);
    EXPECT_EQ(step.verdict.mean_loss, 0);
    EXPECT_EQ(step.verdict.grad_norm, 0);
  }
}

// Along the gradient's own direction the loss rises by its norm: what is logged is what is descended.
TEST(Normalisation, TheGradientIsThatOfTheReportedLoss) {
  on_ranks(llama3("tiny"), cut(1, 2, 2), [&](RankContext& rank) {
    PlainStep plain(rank.model, rank.device, rank.communicator, deal(rank.model.options(), with_valid_labels({1, 9, 16, 3})));
    const Verdict here = plain.run(EpochId{1}, Step{1}, 0.0).verdict;
    const double to_mean = rank.model.options().nominal_tokens / here.tokens;
    std::vector<std::vector<float>> direction;
    for (const StateTensor& g : rank.model.gradients()) direction.emplace_back(g.view.as<float>(), g.view.as<float>() + g.view.shape.elements());
    const auto loss_at = [&](double distance) {
      rank.model.initialise(1);
      std::size_t parameter = 0;
      for (const StateTensor& w : rank.model.state()) {
        if (!w.model) continue;
        for (std::size_t i = 0; i < direction[parameter].size(); ++i)
          w.view.as<float>()[i] += static_cast<float>(distance * to_mean / here.grad_norm * direction[parameter][i]);
        ++parameter;
      }
      return plain.run(EpochId{1}, Step{1}, 0.0).verdict.mean_loss;
    };
    constexpr double h = 1e-3;
    EXPECT_NEAR((loss_at(h) - loss_at(-h)) / (2 * h) / here.grad_norm, 1.0, 5e-3);
  });
}

}  // namespace
}  // namespace troupe::test
