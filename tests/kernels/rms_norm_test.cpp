#include "tests/kernels/kernel_test.hpp"

namespace troupe {
namespace {

constexpr double eps = 1e-5;

class RmsNorm : public KernelTest {
 protected:
  static at::Tensor formula(const at::Tensor& x, const at::Tensor& w) { return x * at::rsqrt(x.square().mean(-1, true) + eps) * w; }
};

TEST_F(RmsNorm, ForwardAndBackwardAgreeWithAutograd) {
  for (const Precision& precision : precisions) {
    for (const auto& [rows, columns] : std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 8}, {5, 1}, {7, 33}, {3, 256}, {66, 100}}) {
      const at::Tensor x = random({rows, columns}, precision.type), w = random({columns}, precision.type), dy = random({rows, columns}, precision.type);
      const at::Tensor x64 = leaf(x), w64 = leaf(w), y64 = formula(x64, w64);
      y64.backward(dy.to(at::kDouble));
      const at::Tensor y = at::empty_like(x), dx = at::empty_like(x), rstd = at::empty({rows}, precision.wide()), dw = at::empty({columns}, precision.wide());
      kernels_.rms_norm(stream_, view(x), view(w), eps, view(y), view(rstd));
      kernels_.rms_norm_backward(stream_, view(dy), view(x), view(w), view(rstd), view(dx), false, view(dw), false);
      EXPECT_LT(relative_error(y, y64), precision.tolerance);
      // One column cancels: dx is the small difference of large terms.
      const double slack = columns == 1 ? 1e5 : 1.0;
      EXPECT_LT((dx.to(at::kDouble) - x64.grad()).norm().item<double>(), precision.tolerance * slack * std::max(1.0, x64.grad().norm().item<double>()));
      EXPECT_LT(relative_error(dw, w64.grad()), precision.type == at::kDouble ? 1e-12 : 2e-6) << "the weight's gradient is not rounded to bf16";
    }
  }
}

TEST_F(RmsNorm, EachAccumulateFlagAddsToItsOwnGradient) {
  const at::Tensor x = random({4, 24}, at::kDouble), w = random({24}, at::kDouble), dy = random({4, 24}, at::kDouble);
  const at::Tensor y = at::empty_like(x), rstd = at::empty({4}, at::kDouble), dx = at::empty_like(x), dw = at::empty_like(w);
  kernels_.rms_norm(stream_, view(x), view(w), eps, view(y), view(rstd));
  kernels_.rms_norm_backward(stream_, view(dy), view(x), view(w), view(rstd), view(dx), false, view(dw), false);
  for (const bool add_dx : {false, true}) {
    const at::Tensor dx2 = at::ones_like(dx), dw2 = at::ones_like(dw);
    kernels_.rms_norm_backward(stream_, view(dy), view(x), view(w), view(rstd), view(dx2), add_dx, view(dw2), !add_dx);
    EXPECT_LT(relative_error(dx2, add_dx ? dx + 1 : dx), 1e-14);
    EXPECT_LT(relative_error(dw2, add_dx ? dw : dw + 1), 1e-14);
  }
}

TEST_F(RmsNorm, ARowOfZerosStaysZero) {
  const at::Tensor x = at::zeros({2, 16}), w = at::ones({16}), y = at::empty_like(x), rstd = at::empty({2});
  kernels_.rms_norm(stream_, view(x), view(w), eps, view(y), view(rstd));
  EXPECT_EQ(y.abs().sum().item<double>(), 0.0);
}

TEST_F(RmsNorm, TheInputsGradientMayOverwriteTheOutputs) {
  const at::Tensor x = random({5, 40}, at::kFloat), w = random({40}, at::kFloat), dy = random({5, 40}, at::kFloat);
  const at::Tensor y = at::empty_like(x), rstd = at::empty({5}), dx = at::empty_like(x), dw = at::empty({40}), dw2 = at::empty({40});
  kernels_.rms_norm(stream_, view(x), view(w), eps, view(y), view(rstd));
  kernels_.rms_norm_backward(stream_, view(dy), view(x), view(w), view(rstd), view(dx), false, view(dw), false);
  kernels_.rms_norm_backward(stream_, view(dy), view(x), view(w), view(rstd), view(dy), false, view(dw2), false);
  EXPECT_TRUE(same_bits(dy, dx));
  EXPECT_TRUE(same_bits(dw, dw2));
}

}  // namespace
}  // namespace troupe
