#include <cmath>

#include "tests/kernels/kernel_test.hpp"

namespace troupe {
namespace {

struct Scaled {
  at::Tensor codes;
  float scale;
  [[nodiscard]] Float8View view() const { return {troupe::view(codes), &scale}; }
  [[nodiscard]] at::Tensor exact() const { return codes.to(at::kFloat).to(at::kDouble) / static_cast<double>(scale); }
};

class LinearFloat8 : public KernelTest {
 protected:
  Scaled scaled(at::IntArrayRef sizes, at::ScalarType type) { return scaled(at::randn(sizes), type); }
  Scaled scaled(const at::Tensor& x, at::ScalarType type) {
    Scaled result{at::empty(x.sizes(), at::TensorOptions(type)), 0};
    float amax = 0;
    kernels_.amax(stream_, view(x), &amax, false);
    kernels_.scale_from_amax(stream_, &amax, type == at::kFloat8_e4m3fn ? DType::e4m3 : DType::e5m2, &result.scale);
    kernels_.quantize(stream_, view(x), &result.scale, view(result.codes), nullptr);
    return result;
  }
};

/// fp32 sums; bf16 results are rounded once: at most half a unit in the last place of 8 bits.
double tolerance_of(at::ScalarType type) { return type == at::kFloat ? 2e-6 : 2.5e-3; }

TEST_F(LinearFloat8, ProductsAreExactSumsOfTheQuantisedValues) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const auto& [tokens, in, out] :
         std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>>{{16, 32, 48}, {1, 16, 16}, {70, 256, 96}, {3, 19, 7}}) {
      const Scaled x = scaled({tokens, in}, at::kFloat8_e4m3fn), w = scaled({out, in}, at::kFloat8_e4m3fn), dy = scaled({tokens, out}, at::kFloat8_e5m2);
      const at::Tensor y = at::full({tokens, out}, 99.0, type), dx = at::full({tokens, in}, 99.0, type), dw = at::full({out, in}, 99.0);
      kernels_.linear_fp8(stream_, x.view(), w.view(), view(y));
      kernels_.linear_fp8_backward_input(stream_, dy.view(), w.view(), view(dx), false);
      kernels_.linear_fp8_backward_weight(stream_, dy.view(), x.view(), view(dw), false);
      EXPECT_LT(relative_error(y, at::mm(x.exact(), w.exact().t())), tolerance_of(type));
      EXPECT_LT(relative_error(dx, at::mm(dy.exact(), w.exact())), tolerance_of(type));
      EXPECT_LT(relative_error(dw, at::mm(dy.exact().t(), x.exact())), 2e-6);
    }
  }
}

TEST_F(LinearFloat8, AccumulatingAddsToWhatIsThere) {
  const Scaled x = scaled({16, 32}, at::kFloat8_e4m3fn), w = scaled({48, 32}, at::kFloat8_e4m3fn), dy = scaled({16, 48}, at::kFloat8_e5m2);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor dx = random({16, 32}, type), want = dx.to(at::kDouble) + at::mm(dy.exact(), w.exact());
    kernels_.linear_fp8_backward_input(stream_, dy.view(), w.view(), view(dx), true);
    EXPECT_LT(relative_error(dx, want), tolerance_of(type));
  }
  const at::Tensor dw = random({48, 32}, at::kFloat), want = dw.to(at::kDouble) + at::mm(dy.exact().t(), x.exact());
  kernels_.linear_fp8_backward_weight(stream_, dy.view(), x.view(), view(dw), true);
  EXPECT_LT(relative_error(dw, want), 2e-6);
}

TEST_F(LinearFloat8, ZeroGradientsGiveExactZeros) {
  const Scaled x = scaled({16, 32}, at::kFloat8_e4m3fn), zero = scaled(at::zeros({16, 48}), at::kFloat8_e5m2),
               w = scaled(at::zeros({48, 32}), at::kFloat8_e4m3fn);
  const at::Tensor y = at::empty({16, 48}), dx = at::empty({16, 32}), dw = at::empty({48, 32});
  kernels_.linear_fp8(stream_, x.view(), w.view(), view(y));
  kernels_.linear_fp8_backward_input(stream_, zero.view(), w.view(), view(dx), false);
  kernels_.linear_fp8_backward_weight(stream_, zero.view(), x.view(), view(dw), false);
  for (const at::Tensor& result : {y, dx, dw}) EXPECT_TRUE(at::equal(result, at::zeros_like(result)));
}

TEST_F(LinearFloat8, AConvertedLinearIsCloseToTheUnquantisedOne) {
  const at::Tensor x = at::randn({64, 128}), w = at::randn({96, 128}), y = at::empty({64, 96});
  kernels_.linear_fp8(stream_, scaled(x, at::kFloat8_e4m3fn).view(), scaled(w, at::kFloat8_e4m3fn).view(), view(y));
  EXPECT_LT(relative_error(y, at::mm(x.to(at::kDouble), w.to(at::kDouble).t())), 0.05);
}

TEST_F(LinearFloat8, EveryCodeIsReadExactly) {
  const at::Tensor bytes = at::arange(256, at::kInt).to(at::kByte).reshape({256, 1});
  const Scaled one{at::ones({1, 1}).to(at::kFloat8_e4m3fn), 1.0F};
  const at::Tensor y = at::empty({256, 1}), dx = at::empty({256, 1});
  const Scaled x{bytes.view(at::kFloat8_e4m3fn), 1.0F}, dy{bytes.view(at::kFloat8_e5m2), 1.0F};
  kernels_.linear_fp8(stream_, x.view(), one.view(), view(y));
  kernels_.linear_fp8_backward_input(stream_, dy.view(), one.view(), view(dx), false);
  EXPECT_TRUE(at::allclose(y, x.codes.to(at::kFloat), 0, 0, true));
  EXPECT_TRUE(at::allclose(dx, dy.codes.to(at::kFloat), 0, 0, true));
}

TEST_F(LinearFloat8, NotANumberIsNotLost) {
  const at::Tensor values = at::randn({4, 16});
  values[2][5] = std::nan("");
  Scaled x{at::empty({4, 16}, at::TensorOptions(at::kFloat8_e4m3fn)), 1.0F};
  kernels_.quantize(stream_, view(values), &x.scale, view(x.codes), nullptr);
  const Scaled w = scaled({8, 16}, at::kFloat8_e4m3fn);
  const at::Tensor y = at::empty({4, 8});
  kernels_.linear_fp8(stream_, x.view(), w.view(), view(y));
  EXPECT_TRUE(y[2].isnan().all().item<bool>());
  EXPECT_FALSE(y[1].isnan().any().item<bool>());
}

}  // namespace
}  // namespace troupe
