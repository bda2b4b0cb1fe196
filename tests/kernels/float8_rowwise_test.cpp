#include <cmath>
#include <limits>

#include "tests/kernels/kernel_test.hpp"

namespace troupe {
namespace {

struct Cast {
  at::Tensor codes, scales;
  Float8Scaling by{};
  [[nodiscard]] Float8View view() const { return {troupe::view(codes), scales.data_ptr<float>(), by}; }
  /// [R, 1], [1, C] or [1, 1], so that it broadcasts.
  [[nodiscard]] at::Tensor broadcast() const {
    return by == Float8Scaling::rows ? scales.unsqueeze(1) : by == Float8Scaling::columns ? scales.unsqueeze(0) : scales.reshape({1, 1});
  }
  [[nodiscard]] at::Tensor exact() const { return codes.to(at::kFloat).to(at::kDouble) / broadcast().to(at::kDouble); }
};

class Float8Rowwise : public KernelTest {
 protected:
  Cast cast(const at::Tensor& x, Float8Scaling by, at::ScalarType type = at::kFloat8_e4m3fn) {
    const std::int64_t scales = by == Float8Scaling::rows ? x.size(0) : by == Float8Scaling::columns ? x.size(1) : 1;
    Cast result{at::empty(x.sizes(), at::TensorOptions(type)), at::full({scales}, -1.0F), by};
    kernels_.quantize_by_powers(stream_, view(x), by, view(result.scales), view(result.codes), &counts_);
    return result;
  }
  /// torchao's formulas with torch's operations: amax over what shares a scale, fmax / clamp(amax, 1e-12) rounded down to a power of two,
  /// clamp, cast. Exact for quotients that are no power of two themselves, which random values do not give.
  static at::Tensor expected_scales(const at::Tensor& x, Float8Scaling by, double largest) {
    const at::Tensor wide = x.to(at::kDouble).abs();
    const at::Tensor amax = by == Float8Scaling::rows ? at::amax(wide, 1) : by == Float8Scaling::columns ? at::amax(wide, 0) : at::amax(wide).reshape({1});
    return at::exp2(at::floor(at::log2(largest / amax.clamp_min(1e-12)))).to(at::kFloat);
  }
  Float8Counts counts_;
};

constexpr Float8Scaling every_scaling[] = {Float8Scaling::tensor, Float8Scaling::rows, Float8Scaling::columns};

TEST_F(Float8Rowwise, ScalesAndCodesAreTorchaosForEveryAxisAndType) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = (at::randn({37, 53}) * at::exp(3 * at::randn({37, 1})) * at::exp(3 * at::randn({1, 53}))).to(type);
    for (const Float8Scaling by : every_scaling) {
      for (const at::ScalarType code : {at::kFloat8_e4m3fn, at::kFloat8_e5m2}) {
        const double largest = code == at::kFloat8_e4m3fn ? 448 : 57344;
        const Cast found = cast(x, by, code);
        EXPECT_TRUE(at::equal(found.scales, expected_scales(x, by, largest)));
        const at::Tensor want = (x.to(at::kFloat) * found.broadcast()).clamp(-largest, largest).to(code);
        EXPECT_TRUE(at::equal(found.codes.view(at::kByte), want.view(at::kByte)));
      }
    }
  }
  EXPECT_EQ(counts_.saturated, 0);
  EXPECT_EQ(counts_.non_finite, 0);
}

TEST_F(Float8Rowwise, APowerOfTwoFitsItsAmaxAndIsTheLargestThatDoes) {
  for (const float amax : {1e-42F, 1e-38F, 1e-12F, 0.4375F, 0.43750003F, 1.0F, 3.0F, 448.0F, 448.00003F, 3e38F}) {
    const float scale = cast(at::full({2, 3}, amax), Float8Scaling::rows).scales[0].item<float>();
    EXPECT_TRUE(std::isfinite(scale) && std::frexp(scale, std::make_unique<int>().get()) == 0.5F) << amax;
    EXPECT_LE(static_cast<double>(amax) * static_cast<double>(scale), 448.0) << amax;
    if (amax > 1e-12F) {
      EXPECT_GT(static_cast<double>(amax) * static_cast<double>(scale), 223.99) << amax;
    }
  }
}

TEST_F(Float8Rowwise, AZeroRowGivesZerosAndDoesNotTouchTheOthers) {
  at::Tensor x = at::randn({4, 16});
  const Cast before = cast(x, Float8Scaling::rows);
  x[2].zero_();
  const Cast found = cast(x, Float8Scaling::rows);
  EXPECT_EQ(found.codes[2].to(at::kFloat).abs().max().item<float>(), 0.0F);
  EXPECT_TRUE(std::isfinite(found.scales[2].item<float>()));
  for (const std::int64_t row : {0, 1, 3}) EXPECT_TRUE(at::equal(found.codes[row].view(at::kByte), before.codes[row].view(at::kByte)));
  const Cast zeros = cast(at::zeros({4, 16}), Float8Scaling::columns);
  EXPECT_TRUE(at::isfinite(zeros.scales).all().item<bool>());
  EXPECT_EQ(zeros.codes.to(at::kFloat).abs().max().item<float>(), 0.0F);
  EXPECT_EQ(cast(at::empty({0, 16}), Float8Scaling::rows).codes.numel(), 0);
}

TEST_F(Float8Rowwise, ProductsAreExactSumsOfTheQuantisedValues) {
  using S = Float8Scaling;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const double tolerance = type == at::kFloat ? 2e-6 : 2.5e-3;
    const at::Tensor x = at::randn({48, 80}) * at::exp(at::randn({48, 1})), w = at::randn({64, 80}) * at::exp(at::randn({1, 80})), dy = at::randn({48, 64});
    const at::Tensor y = at::full({48, 64}, 9.0, type), dx = at::ones({48, 80}, type), dw = at::full({64, 80}, 9.0);
    const Cast xr = cast(x, S::rows), wr = cast(w, S::rows), wt = cast(w, S::tensor), wc = cast(w, S::columns), xc = cast(x, S::columns),
               dyr = cast(dy, S::rows), dyc = cast(dy, S::columns);
    kernels_.linear_fp8(stream_, xr.view(), wr.view(), view(y));
    EXPECT_LT(relative_error(y, at::mm(xr.exact(), wr.exact().t())), tolerance);
    kernels_.linear_fp8_backward_input(stream_, dyr.view(), wc.view(), view(dx), true);
    EXPECT_LT(relative_error(dx, 1 + at::mm(dyr.exact(), wc.exact())), tolerance);
    kernels_.linear_fp8_backward_input(stream_, dyr.view(), wt.view(), view(dx), false);
    EXPECT_LT(relative_error(dx, at::mm(dyr.exact(), wt.exact())), tolerance);
    kernels_.linear_fp8_backward_weight(stream_, dyc.view(), xc.view(), view(dw), false);
    EXPECT_LT(relative_error(dw, at::mm(dyc.exact().t(), xc.exact())), 2e-6);
  }
}

TEST_F(Float8Rowwise, AScaleThatVariesWithinASumIsRefused) {
  using S = Float8Scaling;
  const at::Tensor x = at::randn({16, 32}), w = at::randn({48, 32}), dy = at::randn({16, 48}), y = at::empty({16, 48}), dx = at::empty({16, 32}),
                   dw = at::empty({48, 32});
  EXPECT_THROW(kernels_.linear_fp8(stream_, cast(x, S::columns).view(), cast(w, S::rows).view(), view(y)), std::invalid_argument);
  EXPECT_THROW(kernels_.linear_fp8(stream_, cast(x, S::rows).view(), cast(w, S::columns).view(), view(y)), std::invalid_argument);
  EXPECT_THROW(kernels_.linear_fp8_backward_input(stream_, cast(dy, S::rows).view(), cast(w, S::rows).view(), view(dx), false), std::invalid_argument);
  EXPECT_THROW(kernels_.linear_fp8_backward_weight(stream_, cast(dy, S::rows).view(), cast(x, S::columns).view(), view(dw), false), std::invalid_argument);
}

TEST_F(Float8Rowwise, CastsCountWhatSaturatesAndWhatIsNotFinite) {
  const float one = 1.0F, nothing = 0.0F, infinity = std::numeric_limits<float>::infinity();
  const at::Tensor x = at::tensor({448.0F, 464.0F, 464.0001F, -1e9F, infinity, -infinity, std::nanf(""), 0.0F});
  const at::Tensor e4m3 = at::empty({8}, at::kFloat8_e4m3fn), e5m2 = at::empty({4}, at::kFloat8_e5m2);
  Float8Counts counts{.saturated = 10, .non_finite = 20};
  kernels_.quantize(stream_, view(x), &one, view(e4m3), &counts);
  EXPECT_EQ(counts.saturated, 12) << "464.0001 and -1e9; 464 rounds to 448";
  EXPECT_EQ(counts.non_finite, 23);
  counts = {};
  kernels_.quantize(stream_, view(at::tensor({61439.0F, 61440.0F, 57344.0F, 1e6F})), &one, view(e5m2), &counts);
  EXPECT_EQ(counts.saturated, 2);
  EXPECT_EQ(counts.non_finite, 0);
  counts = {};
  kernels_.quantize(stream_, view(x), &nothing, view(e4m3), &counts);
  EXPECT_EQ(counts.non_finite, 3) << "an infinite amax has scale 0";
  counts_ = {};
  (void)cast(at::tensor({1.0F, infinity, 1.0F, 2.0F}).reshape({2, 2}), Float8Scaling::rows);
  EXPECT_EQ(counts_.non_finite, 1);
  EXPECT_EQ(counts_.saturated, 0);
}

}  // namespace
}  // namespace troupe
