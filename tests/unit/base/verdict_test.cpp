#include "src/device/verdict.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace troupe {
namespace {

constexpr double tag = verdict_tag(1, 7);
constexpr double no_clipping = 0;

/// Two ranks, 100 tokens, gradients of norm 3.
VerdictSums sums() { return {.grad_square = 9, .loss = 250, .tokens = 100, .bad = 0, .tag = 2 * tag}; }
Verdict decide(const VerdictSums& given, double max_norm = no_clipping, bool halted = false) { return decide_verdict(given, 2, tag, 100, max_norm, halted); }

TEST(Verdict, CommitsAHealthyStep) {
  const Verdict verdict = decide(sums());
  EXPECT_EQ(verdict.outcome, VerdictOutcome::commit);
  EXPECT_DOUBLE_EQ(verdict.grad_norm, 3.0);
  EXPECT_DOUBLE_EQ(verdict.mean_loss, 2.5);
  EXPECT_FLOAT_EQ(verdict.gradient_factor, 1.0F);
}

TEST(Verdict, IsVoidWhenHaltedWhateverTheSums) {
  EXPECT_EQ(decide(sums(), no_clipping, true).outcome, VerdictOutcome::void_);
  VerdictSums bad = sums();
  bad.bad = 1;
  EXPECT_EQ(decide(bad, no_clipping, true).outcome, VerdictOutcome::void_);
}

TEST(Verdict, IsVoidWhenTheTagsDoNotAddUp) {
  VerdictSums stale = sums();
  stale.tag = tag;
  EXPECT_EQ(decide(stale).outcome, VerdictOutcome::void_);
  stale.tag = 2 * verdict_tag(1, 6);
  EXPECT_EQ(decide(stale).outcome, VerdictOutcome::void_);
  stale.tag = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(decide(stale).outcome, VerdictOutcome::void_);
}

TEST(Verdict, IsVoidUntilDecided) { EXPECT_EQ(Verdict{}.outcome, VerdictOutcome::void_); }

TEST(Verdict, SkipsAStepWithABadLossOrAGradientThatIsNotFinite) {
  VerdictSums bad = sums();
  bad.bad = 1;
  EXPECT_EQ(decide(bad).outcome, VerdictOutcome::skip);
  bad = sums();
  bad.grad_square = std::numeric_limits<double>::infinity();
  EXPECT_EQ(decide(bad).outcome, VerdictOutcome::skip);
  bad.grad_square = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(decide(bad).outcome, VerdictOutcome::skip);
  EXPECT_EQ(decide(bad).gradient_factor, 0.0F);
}

TEST(Verdict, ClipsAsTorchDoes) {
  EXPECT_FLOAT_EQ(decide(sums(), 1.0).gradient_factor, static_cast<float>(1.0 / (3.0 + 1e-6)));
  EXPECT_FLOAT_EQ(decide(sums(), 5.0).gradient_factor, 1.0F);
  EXPECT_FLOAT_EQ(decide(sums(), std::numeric_limits<double>::infinity()).gradient_factor, 1.0F);
  EXPECT_FLOAT_EQ(decide(sums(), -1.0).gradient_factor, 1.0F);
}

TEST(Verdict, ReportsTheNormBeforeClipping) { EXPECT_DOUBLE_EQ(decide(sums(), 0.5).grad_norm, 3.0); }

TEST(Verdict, RescalesGradientsWhenFewerTokensWereValidThanPlanned) {
  VerdictSums ignored = sums();
  ignored.tokens = 50;
  const Verdict verdict = decide(ignored);
  EXPECT_FLOAT_EQ(verdict.gradient_factor, 2.0F);
  EXPECT_DOUBLE_EQ(verdict.grad_norm, 6.0);
  EXPECT_DOUBLE_EQ(verdict.mean_loss, 5.0);
}

TEST(Verdict, OfAStepWithoutValidTokensMovesNothing) {
  VerdictSums nothing = sums();
  nothing.tokens = nothing.loss = nothing.grad_square = 0;
  const Verdict verdict = decide(nothing, 1.0);
  EXPECT_EQ(verdict.outcome, VerdictOutcome::commit);
  EXPECT_EQ(verdict.gradient_factor, 0.0F);
  EXPECT_EQ(verdict.mean_loss, 0.0);
  EXPECT_EQ(verdict.grad_norm, 0.0);
}

TEST(VerdictTag, IsNeverZeroAndExactWhenSummedOverManyRanks) {
  const double largest = 0x1000000;
  for (const std::uint64_t step : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
    EXPECT_GT(verdict_tag(3, step), 0.0);
    EXPECT_LE(verdict_tag(3, step), largest);
  }
  EXPECT_EQ(largest * (1 << 20) + 1.0 - largest * (1 << 20), 1.0);
  EXPECT_NE(verdict_tag(1, 2), verdict_tag(2, 2));
  EXPECT_NE(verdict_tag(1, 2), verdict_tag(1, 3));
}

}  // namespace
}  // namespace troupe
