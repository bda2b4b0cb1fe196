#include "src/device/cpu/matrix_product.hpp"
#include "tests/kernels/kernel_test.hpp"

namespace troupe {
namespace {

struct LinearShape {
  std::int64_t tokens, in, out;
};
const std::vector<LinearShape> shapes = {{1, 8, 8}, {7, 33, 17}, {64, 48, 80}, {130, 257, 65}, {1, 1, 1}, {5, 300, 1}, {256, 256, 96}};

class Linear : public KernelTest {};

TEST_F(Linear, ForwardIsTheProductWithTheTransposedWeight) {
  for (const Precision& precision : precisions) {
    for (const LinearShape& s : shapes) {
      const at::Tensor x = random({s.tokens, s.in}, precision.type), w = random({s.out, s.in}, precision.type);
      const at::Tensor y = at::full({s.tokens, s.out}, 99.0, precision.type);
      kernels_.linear(stream_, view(x), view(w), view(y));
      EXPECT_LT(relative_error(y, at::mm(x.to(at::kDouble), w.to(at::kDouble).t())), precision.tolerance) << s.tokens << " " << s.in << " " << s.out;
    }
  }
}

TEST_F(Linear, BackwardAgreesWithAutograd) {
  for (const Precision& precision : precisions) {
    for (const LinearShape& s : shapes) {
      const at::Tensor x = random({s.tokens, s.in}, precision.type), w = random({s.out, s.in}, precision.type), dy = random({s.tokens, s.out}, precision.type);
      const at::Tensor x64 = leaf(x), w64 = leaf(w);
      at::mm(x64, w64.t()).backward(dy.to(at::kDouble));
      const at::Tensor dx = at::full_like(x, 99.0), dw = at::full({s.out, s.in}, 99.0, precision.wide());
      kernels_.linear_backward_input(stream_, view(dy), view(w), view(dx), false);
      kernels_.linear_backward_weight(stream_, view(dy), view(x), view(dw), false);
      EXPECT_LT(relative_error(dx, x64.grad()), precision.tolerance);
      EXPECT_LT(relative_error(dw, w64.grad()), precision.type == at::kDouble ? 1e-12 : 2e-6) << "bf16 inputs must not round the weight's gradient";
      const at::Tensor rounded = at::full({s.out, s.in}, 99.0, precision.type);
      kernels_.linear_backward_weight(stream_, view(dy), view(x), view(rounded), false);
      EXPECT_LT(relative_error(rounded, w64.grad()), precision.tolerance) << "unless it is asked for";
    }
  }
}

TEST_F(Linear, AccumulatingAddsToWhatIsThere) {
  for (const Precision& precision : precisions) {
    const at::Tensor x = random({9, 21}, precision.type), w = random({13, 21}, precision.type), dy = random({9, 13}, precision.type);
    const at::Tensor dx = random({9, 21}, precision.type), dw = random({13, 21}, precision.wide());
    const at::Tensor want_dx = dx.to(at::kDouble) + at::mm(dy.to(at::kDouble), w.to(at::kDouble));
    const at::Tensor want_dw = dw.to(at::kDouble) + at::mm(dy.to(at::kDouble).t(), x.to(at::kDouble));
    kernels_.linear_backward_input(stream_, view(dy), view(w), view(dx), true);
    kernels_.linear_backward_weight(stream_, view(dy), view(x), view(dw), true);
    EXPECT_LT(relative_error(dx, want_dx), precision.tolerance);
    EXPECT_LT(relative_error(dw, want_dw), precision.type == at::kDouble ? 1e-12 : 2e-6);
  }
}

TEST_F(Linear, NoTokensGiveAZeroWeightGradientOrLeaveItAlone) {
  const at::Tensor x = at::empty({0, 4}), dy = at::empty({0, 3}), dw = at::ones({3, 4});
  kernels_.linear_backward_weight(stream_, view(dy), view(x), view(dw), true);
  EXPECT_EQ(dw.sum().item<double>(), 12.0);
  kernels_.linear_backward_weight(stream_, view(dy), view(x), view(dw), false);
  EXPECT_EQ(dw.abs().sum().item<double>(), 0.0);
}

TEST_F(Linear, NotANumberInTheOutputDoesNotSurviveAnOverwrite) {
  for (const Precision& precision : precisions) {
    const at::Tensor dy = random({6, 5}, precision.type), x = random({6, 7}, precision.type), w = random({5, 7}, precision.type);
    const at::Tensor dw = at::full({5, 7}, std::nan(""), precision.wide()), dx = at::full({6, 7}, std::nan(""), precision.type);
    kernels_.linear_backward_weight(stream_, view(dy), view(x), view(dw), false);
    kernels_.linear_backward_input(stream_, view(dy), view(w), view(dx), false);
    EXPECT_FALSE(dw.isnan().any().item<bool>());
    EXPECT_FALSE(dx.isnan().any().item<bool>());
  }
}

TEST_F(Linear, EveryLayoutFactorAndAddendIsRightWithAndWithoutBfloat16Instructions) {
  cpu::Scratch scratch;
  for (const auto& [rows, inner, columns] : std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>>{
           {1, 1, 1}, {12, 32, 32}, {13, 33, 31}, {37, 64, 70}, {11, 2, 47}, {24, 95, 16}, {50, 130, 129}, {0, 4, 4}, {3, 0, 5}}) {
    for (const bool left_transposed : {false, true}) {
      for (const bool right_transposed : {false, true}) {
        for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
          for (const bool accumulate : {false, true}) {
            const at::Tensor left = random(left_transposed ? at::IntArrayRef{inner, rows} : at::IntArrayRef{rows, inner}, at::kBFloat16);
            const at::Tensor right = random(right_transposed ? at::IntArrayRef{columns, inner} : at::IntArrayRef{inner, columns}, at::kBFloat16);
            const at::Tensor a = left_transposed ? left.t() : left, b = right_transposed ? right.t() : right, before = random({rows, columns}, type);
            const at::Tensor want = at::mm(a.to(at::kDouble), b.to(at::kDouble)) * 1.75 + (accumulate ? 1.0 : 0.0) * before.to(at::kDouble);
            const at::Tensor fast = before.clone(), portable = before.clone();
            cpu::multiply({view(left), left_transposed}, {view(right), right_transposed}, view(fast), accumulate, 1.75F, scratch);
            cpu::multiply_by_torch({view(left), left_transposed}, {view(right), right_transposed}, view(portable), accumulate, 1.75F, scratch);
            const double tolerance = type == at::kFloat ? 1e-6 : 4e-3;
            EXPECT_LT(relative_error(fast, want), tolerance) << rows << " " << inner << " " << columns << " " << left_transposed << right_transposed;
            EXPECT_LT(relative_error(portable, want), tolerance) << rows << " " << inner << " " << columns << " " << left_transposed << right_transposed;
          }
        }
      }
    }
  }
}

TEST_F(Linear, RepeatsBitForBit) {
  const at::Tensor x = random({65, 130}, at::kBFloat16), dy = random({65, 70}, at::kBFloat16);
  const at::Tensor once = at::empty({70, 130}), twice = at::empty({70, 130});
  kernels_.linear_backward_weight(stream_, view(dy), view(x), view(once), false);
  kernels_.linear_backward_weight(stream_, view(dy), view(x), view(twice), false);
  EXPECT_TRUE(same_bits(once, twice));
}

}  // namespace
}  // namespace troupe
