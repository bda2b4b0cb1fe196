#include <gtest/gtest.h>

#include <cmath>

#include "tests/model/ranks.hpp"

namespace troupe::test {
namespace {

/// 37 rows of vocabulary and 3 heads' worth of width: nothing that is sharded divides by 2 or 4 evenly everywhere.
ModelDescription awkward() {
  Llama3Flavour flavour = llama3_flavour("tiny").value();
  flavour.vocab_size = 37;
  flavour.dim = 36;
  flavour.heads = 6;
  flavour.kv_heads = 3;
  flavour.ffn_hidden = 50;
  return describe_llama3(flavour);
}

TrainingOptions options(std::uint32_t world, std::uint32_t micro_batches = 1) {
  TrainingOptions o;
  o.batch = {4 / world / micro_batches, 24};
  o.micro_batches = micro_batches;
  o.world = world;
  return o;
}

void expect_same(const std::vector<StepNumbers>& found, const std::vector<StepNumbers>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].verdict.outcome, VerdictOutcome::commit) << "step " << i + 1;
    EXPECT_NEAR(found[i].verdict.mean_loss / expected[i].verdict.mean_loss, 1.0, 1e-5) << "step " << i + 1;
    EXPECT_NEAR(found[i].verdict.grad_norm / expected[i].verdict.grad_norm, 1.0, 1e-5) << "step " << i + 1;
  }
}

TEST(Parallel, OneRankLearns) {
  const auto numbers = train(awkward(), options(1), markov_rows(37), 20, 1e-2);
  EXPECT_NEAR(numbers.front().verdict.mean_loss, std::log(37.0) + 0.5, 0.5);
  EXPECT_LT(numbers.back().verdict.mean_loss, numbers.front().verdict.mean_loss - 0.3);
}

TEST(Parallel, TwoAndFourRanksRepeatTheLossesAndNormsOfOne) {
  const auto one = train(awkward(), options(1), markov_rows(37), 20, 1e-3);
  expect_same(train(awkward(), options(2), markov_rows(37), 20, 1e-3), one);
  expect_same(train(awkward(), options(4), markov_rows(37), 20, 1e-3), one);
}

TEST(Parallel, TiedEmbeddingsSumTheGradientsOfBothUnitsOnAnyNumberOfRanks) {
  const auto one = train(llama3("tiny_tied"), options(1), markov_rows(64), 10, 1e-3);
  expect_same(train(llama3("tiny_tied"), options(2), markov_rows(64), 10, 1e-3), one);
  expect_same(train(llama3("tiny_tied"), options(1, 2), markov_rows(64), 10, 1e-3), one);
}

TEST(Parallel, RecomputedBlocksGiveTheSameBitsInLessMemory) {
  TrainingOptions recomputed = options(1);
  recomputed.recompute = Recompute::full;
  const auto saved = train(awkward(), options(1), markov_rows(37), 5, 1e-3);
  const auto again = train(awkward(), recomputed, markov_rows(37), 5, 1e-3);
  for (std::size_t i = 0; i < saved.size(); ++i) {
    EXPECT_EQ(saved[i].verdict.mean_loss, again[i].verdict.mean_loss);
    EXPECT_EQ(saved[i].verdict.grad_norm, again[i].verdict.grad_norm);
  }
  EXPECT_LT(estimate_training(awkward(), recomputed).tapes.arena_bytes, estimate_training(awkward(), options(1)).tapes.arena_bytes);
}

}  // namespace
}  // namespace troupe::test
