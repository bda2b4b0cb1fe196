#include <cmath>

#include "tests/kernels/kernel_test.hpp"

namespace troupe {
namespace {

constexpr AdamWStep settings{.learning_rate = 3e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};

class Optimizer : public KernelTest {
 protected:
  struct State {
    at::Tensor parameter, first, second;
    std::int64_t count = 0;
  };
  static Verdict commit(float factor = 1.0F) {
    Verdict verdict;
    verdict.outcome = VerdictOutcome::commit;
    verdict.gradient_factor = factor;
    return verdict;
  }
  void step(State& state, const at::Tensor& gradient, const AdamWStep& with, const Verdict& verdict) {
    kernels_.adamw(stream_, view(state.parameter), view(gradient), view(state.first), view(state.second), &state.count, with, &verdict);
  }
  static State start(std::int64_t size, at::ScalarType type) { return {random({size}, type), at::zeros({size}, type), at::zeros({size}, type)}; }
};

/// torch's own fused AdamW or Adam, in fp64.
void torch_step(std::vector<at::Tensor>& state, const at::Tensor& gradient, double count, const AdamWStep& with) {
  const std::vector<at::Tensor> p{state[0]}, g{gradient}, m{state[1]}, v{state[2]}, t{at::full({}, count, at::kFloat)};
  if (with.decoupled) {
    at::_fused_adamw_(p, g, m, v, {}, t, with.learning_rate, with.beta1, with.beta2, with.weight_decay, with.eps, false, false);
  } else {
    at::_fused_adam_(p, g, m, v, {}, t, with.learning_rate, with.beta1, with.beta2, with.weight_decay, with.eps, false, false);
  }
}

TEST_F(Optimizer, FiveStepsEqualTorchsAdamW) {
  for (const bool decoupled : {true, false}) {
    for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
      AdamWStep with = settings;
      with.decoupled = decoupled;
      State state = start(101, type);
      std::vector<at::Tensor> reference = {state.parameter.to(at::kDouble).clone(), at::zeros({101}, at::kDouble), at::zeros({101}, at::kDouble)};
      for (int n = 1; n <= 5; ++n) {
        with.learning_rate = settings.learning_rate / n;
        const at::Tensor gradient = random({101}, type);
        torch_step(reference, gradient.to(at::kDouble) * 0.5, n, with);
        step(state, gradient, with, commit(0.5F));
      }
      const double tolerance = type == at::kDouble ? 1e-12 : 1e-6;
      EXPECT_EQ(state.count, 5);
      EXPECT_LT(relative_error(state.parameter, reference[0]), tolerance);
      EXPECT_LT(relative_error(state.first, reference[1]), tolerance);
      EXPECT_LT(relative_error(state.second, reference[2]), tolerance);
    }
  }
}

TEST_F(Optimizer, AGradientInBfloat16IsThatValueInFloat32) {
  State half = start(101, at::kFloat), whole{half.parameter.clone(), half.first.clone(), half.second.clone()};
  for (int n = 1; n <= 3; ++n) {
    const at::Tensor gradient = random({101}, at::kBFloat16);
    step(half, gradient, settings, commit(0.5F));
    step(whole, gradient.to(at::kFloat), settings, commit(0.5F));
  }
  EXPECT_TRUE(at::equal(half.parameter, whole.parameter));
  EXPECT_TRUE(at::equal(half.first, whole.first));
  EXPECT_TRUE(at::equal(half.second, whole.second));
}

TEST_F(Optimizer, TheFirstStepMovesByTheLearningRateAgainstTheGradient) {
  State state{at::zeros({1}), at::zeros({1}), at::zeros({1})};
  step(state, at::full({1}, -42.0F), settings, commit());
  EXPECT_NEAR(state.parameter.item<float>(), 3e-3F, 1e-8F);
}

TEST_F(Optimizer, SkipAndVoidTouchNothing) {
  for (const VerdictOutcome outcome : {VerdictOutcome::skip, VerdictOutcome::void_}) {
    State state = start(33, at::kFloat);
    const at::Tensor parameter = state.parameter.clone();
    Verdict verdict = commit();
    verdict.outcome = outcome;
    step(state, at::full({33}, std::nan("")).to(at::kFloat), settings, verdict);
    EXPECT_TRUE(same_bits(state.parameter, parameter));
    EXPECT_EQ(state.first.abs().sum().item<float>(), 0.0F);
    EXPECT_EQ(state.second.abs().sum().item<float>(), 0.0F);
    EXPECT_EQ(state.count, 0);
  }
}

TEST_F(Optimizer, TheVerdictHeedsTheHaltWord) {
  const VerdictSums sums{.grad_square = 4, .loss = 8, .tokens = 4, .bad = 0, .tag = 2 * verdict_tag(1, 3)};
  HaltWord halt{0};
  Verdict verdict;
  kernels_.decide(stream_, &sums, 2, verdict_tag(1, 3), 4, 1.0, &halt, &verdict);
  EXPECT_EQ(verdict.outcome, VerdictOutcome::commit);
  EXPECT_DOUBLE_EQ(verdict.mean_loss, 2.0);
  EXPECT_DOUBLE_EQ(verdict.grad_norm, 2.0);
  halt = 1;
  kernels_.decide(stream_, &sums, 2, verdict_tag(1, 3), 4, 1.0, &halt, &verdict);
  EXPECT_EQ(verdict.outcome, VerdictOutcome::void_);
}

}  // namespace
}  // namespace troupe
