#include <cmath>
#include <stdexcept>

#include "tests/kernels/kernel_test.hpp"

namespace troupe {
namespace {

class CrossEntropy : public KernelTest {};

TEST_F(CrossEntropy, LossAndGradientAgreeWithAutograd) {
  for (const Precision& precision : precisions) {
    for (const std::int64_t vocabulary : {2, 33, 257, 1024}) {
      const at::Tensor logits = random({6, vocabulary}, precision.type) * 3, labels = at::tensor({0, 1, -1, 1, -100, 0}, at::kInt);
      const at::Tensor logits64 = leaf(logits);
      const at::Tensor ignored = at::where(labels < 0, at::full_like(labels, -100), labels).to(at::kLong);
      const at::Tensor loss = at::cross_entropy_loss(logits64, ignored, {}, at::Reduction::Sum, -100);
      (loss * 0.125).backward();
      VerdictSums sums;
      sums.loss = 10;
      sums.tokens = 3;
      kernels_.cross_entropy(stream_, view(logits), view(labels), 0.125, &sums);
      EXPECT_NEAR(sums.loss - 10, loss.item<double>(), (precision.type == at::kDouble ? 1e-12 : 2e-6) * std::abs(loss.item<double>())) << vocabulary;
      EXPECT_EQ(sums.tokens, 7.0);
      EXPECT_EQ(sums.bad, 0.0);
      EXPECT_LT(relative_error(logits, logits64.grad()), precision.tolerance) << vocabulary;
    }
  }
}

TEST_F(CrossEntropy, AllLabelsIgnoredGiveZeroGradientsAndNoTokens) {
  const at::Tensor logits = at::full({3, 5}, std::nan("")), labels = at::full({3}, -1, at::kInt);
  VerdictSums sums;
  kernels_.cross_entropy(stream_, view(logits), view(labels), 1.0, &sums);
  EXPECT_EQ(logits.abs().sum().item<double>(), 0.0);
  EXPECT_EQ(sums.loss, 0.0);
  EXPECT_EQ(sums.tokens, 0.0);
  EXPECT_EQ(sums.bad, 0.0);
}

TEST_F(CrossEntropy, HugeLogitsDoNotOverflow) {
  const at::Tensor logits = at::tensor({1e30, -1e30, 0.0, 0.0}, at::kFloat).reshape({2, 2}), labels = at::tensor({0, 1}, at::kInt);
  VerdictSums sums;
  kernels_.cross_entropy(stream_, view(logits), view(labels), 1.0, &sums);
  EXPECT_NEAR(sums.loss, std::log(2.0), 1e-6);
  EXPECT_EQ(sums.bad, 0.0);
}

TEST_F(CrossEntropy, NonFiniteLossesAreCounted) {
  const at::Tensor logits = at::zeros({4, 3}), labels = at::zeros({4}, at::kInt);
  logits[0][1] = std::nan("");
  logits[2][2] = INFINITY;
  logits[3][0] = std::nan("");
  VerdictSums sums;
  kernels_.cross_entropy(stream_, view(logits), view(labels), 1.0, &sums);
  EXPECT_EQ(sums.bad, 3.0);
  EXPECT_EQ(sums.tokens, 4.0);
}

TEST_F(CrossEntropy, ALabelOutsideTheVocabularyIsNamed) {
  const at::Tensor logits = at::zeros({1, 3}), labels = at::full({1}, 3, at::kInt);
  VerdictSums sums;
  EXPECT_THROW(kernels_.cross_entropy(stream_, view(logits), view(labels), 1.0, &sums), std::out_of_range);
}

}  // namespace
}  // namespace troupe
