#include <bit>
#include <cfenv>
#include <cmath>
#include <limits>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "tests/kernels/kernel_test.hpp"

namespace troupe {
namespace {

struct Format {
  DType dtype;
  at::ScalarType torch;
  float largest;
};
const Format e4m3{DType::e4m3, at::kFloat8_e4m3fn, 448.0F}, e5m2{DType::e5m2, at::kFloat8_e5m2, 57344.0F};

class Float8Codes : public KernelTest {
 protected:
  at::Tensor quantized(const at::Tensor& x, const Format& format, float scale = 1.0F) {
    const at::Tensor out = at::empty(x.sizes(), at::TensorOptions(format.torch));
    kernels_.quantize(stream_, view(x), &scale, view(out), nullptr);
    return out;
  }
  float round_trip(float value, const Format& format) { return quantized(at::full({1}, value), format).to(at::kFloat).item<float>(); }
  float amax_of(const at::Tensor& x) {
    float result = -1;
    kernels_.amax(stream_, view(x), &result, false);
    return result;
  }
  float scale_of(float amax, const Format& format) {
    float scale = 0;
    kernels_.scale_from_amax(stream_, &amax, format.dtype, &scale);
    return scale;
  }
  /// torch's own cast of the clamped values; NaN passes through both.
  static at::Tensor expected(const at::Tensor& x, const Format& format) {
    return at::where(x.isnan(), x, x.to(at::kFloat).clamp(-format.largest, format.largest)).to(at::kFloat).to(format.torch);
  }
  /// fp32 values of every exponent with mantissas at, below and above the places where rounding changes.
  static at::Tensor floats() {
    std::vector<float> values;
    for (std::uint32_t exponent = 0; exponent < 256; ++exponent) {
      for (std::uint32_t top = 0; top < 32; ++top) {
        for (const std::uint32_t low : {0U, 1U, 0x3ffffU, 0x20000U, 0x1ffffU, 0x20001U}) {
          const std::uint32_t bits = exponent << 23 | top << 18 | low;
          values.push_back(std::bit_cast<float>(bits));
          values.push_back(std::bit_cast<float>(bits | 0x80000000U));
        }
      }
    }
    return at::tensor(values);
  }
};

TEST_F(Float8Codes, OutOfRangeValuesSaturateAndTiesGoToEven) {
  const std::vector<std::pair<float, float>> table = {
      {448.0F, 448.0F},           {464.0F, 448.0F},     {465.0F, 448.0F},   {1e9F, 448.0F},     {17.0F, 16.0F},       {19.0F, 20.0F},  {0x1p-10F, 0.0F},
      {0x1.000002p-10F, 0x1p-9F}, {0x1.8p-9F, 0x1p-8F}, {0x1p-6F, 0x1p-6F}, {INFINITY, 448.0F}, {-INFINITY, -448.0F}, {-1e9F, -448.0F}};
  for (const auto& [value, rounded] : table) EXPECT_EQ(round_trip(value, e4m3), rounded) << value;
  EXPECT_EQ(round_trip(1e9F, e5m2), 57344.0F);
  EXPECT_EQ(round_trip(-INFINITY, e5m2), -57344.0F);
}

TEST_F(Float8Codes, ZeroKeepsItsSignAndNanStaysNan) {
  for (const Format& format : {e4m3, e5m2}) {
    EXPECT_TRUE(std::signbit(round_trip(-0.0F, format)));
    EXPECT_FALSE(std::signbit(round_trip(0.0F, format)));
    EXPECT_TRUE(std::isnan(round_trip(std::nanf(""), format)));
    EXPECT_TRUE(std::isnan(round_trip(-std::nanf(""), format)));
  }
}

TEST_F(Float8Codes, EveryBfloat16BecomesTheCodeThatTorchsClampedCastGives) {
  const at::Tensor x = at::arange(65536, at::kInt).to(at::kUInt16).view(at::kBFloat16);
  for (const Format& format : {e4m3, e5m2}) {
    const at::Tensor actual = quantized(x, format), want = expected(x, format);
    EXPECT_TRUE(at::equal(actual.view(at::kByte), want.view(at::kByte))) << at::ne(actual.view(at::kByte), want.view(at::kByte)).nonzero().slice(0, 0, 8);
  }
}

TEST_F(Float8Codes, FloatsOfEveryExponentBecomeTheCodeThatTorchsClampedCastGives) {
  const at::Tensor x = floats();
  for (const Format& format : {e4m3, e5m2}) {
    const at::Tensor actual = quantized(x, format), want = expected(x, format);
    EXPECT_TRUE(at::equal(actual.view(at::kByte), want.view(at::kByte)))
        << x.index_select(0, at::ne(actual.view(at::kByte), want.view(at::kByte)).nonzero().flatten().slice(0, 0, 8));
  }
}

TEST_F(Float8Codes, TheScaleIsAppliedInFloat) {
  const at::Tensor x = random({1000}, at::kBFloat16);
  EXPECT_TRUE(same_bits(quantized(x, e4m3, 37.37F).view(at::kByte), expected(x.to(at::kFloat) * 37.37F, e4m3).view(at::kByte)));
}

TEST_F(Float8Codes, AmaxIsTheLargestMagnitudeOfAnyLength) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const std::int64_t length : {1, 7, 16, 100, 4097}) {
      const at::Tensor x = random({length}, type);
      EXPECT_EQ(amax_of(x), x.abs().max().item<float>());
      x[length - 1] = -100.0;
      EXPECT_EQ(amax_of(x), 100.0F);
    }
    EXPECT_EQ(amax_of(at::empty({0}, type)), 0.0F);
    EXPECT_TRUE(std::isnan(amax_of(at::tensor({1.0, std::nan(""), 3.0}, at::kDouble).to(type))));
    EXPECT_EQ(amax_of(at::tensor({1.0, -std::numeric_limits<double>::infinity()}, at::kDouble).to(type)), INFINITY);
  }
}

TEST_F(Float8Codes, AccumulatingAmaxKeepsTheLarger) {
  float amax = 2.0F;
  kernels_.amax(stream_, view(at::tensor({1.0F})), &amax, true);
  EXPECT_EQ(amax, 2.0F);
  kernels_.amax(stream_, view(at::tensor({-5.0F})), &amax, true);
  EXPECT_EQ(amax, 5.0F);
  kernels_.amax(stream_, view(at::tensor({1.0F})), &amax, false);
  EXPECT_EQ(amax, 1.0F);
}

TEST_F(Float8Codes, TheScaleIsFullFloatPrecision) {
  EXPECT_EQ(scale_of(3.0F, e4m3), 448.0F / 3.0F);
  EXPECT_NEAR(scale_of(3.0F, e4m3), 149.3333F, 1e-4F) << "149 would be a scale rounded to bf16";
  EXPECT_EQ(scale_of(3.0F, e5m2), 57344.0F / 3.0F);
}

TEST_F(Float8Codes, ZerosAndNothingGiveZerosUnderAFiniteScale) {
  for (const Format& format : {e4m3, e5m2}) {
    const float scale = scale_of(amax_of(at::zeros({33})), format);
    EXPECT_TRUE(std::isfinite(scale));
    EXPECT_FLOAT_EQ(scale, format.largest / 1e-12F);
    EXPECT_EQ(quantized(at::zeros({33}), format, scale).view(at::kByte).to(at::kInt).sum().item<int>(), 0);
    EXPECT_EQ(quantized(at::empty({0}), format, scale).numel(), 0);
  }
}

void check_extremes(const std::function<float(const at::Tensor&)>& amax_of, const std::function<float(float)>& scale_of,
                    const std::function<at::Tensor(const at::Tensor&, float)>& quantized) {
  const std::vector<at::Tensor> tensors = {at::full({40}, 1e-42F), at::full({40}, 1e-38F), at::full({40}, 1e-12F), at::full({40}, 3e38F),
                                           at::tensor({1e-42F, 1.0F})};
  for (const at::Tensor& x : tensors) {
    const float scale = scale_of(amax_of(x));
    ASSERT_TRUE(std::isfinite(scale));
    const at::Tensor values = quantized(x, scale).to(at::kFloat);
    EXPECT_TRUE(at::isfinite(values).all().item<bool>());
    EXPECT_LE(values.abs().max().item<float>(), 448.0F);
    const at::Tensor back = values.to(at::kDouble) / static_cast<double>(scale);
    EXPECT_LE((back - x.to(at::kDouble)).abs().max().item<double>(), std::max(x.abs().max().item<double>() / 16, 1e-14));
  }
}

TEST_F(Float8Codes, TinyAndHugeTensorsSurviveWithAndWithoutFlushToZero) {
  const auto run = [&] {
    check_extremes([&](const at::Tensor& x) { return amax_of(x); }, [&](float amax) { return scale_of(amax, e4m3); },
                   [&](const at::Tensor& x, float scale) { return quantized(x, e4m3, scale); });
  };
  run();
#if defined(__x86_64__)
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040U);  // flush to zero, denormals are zero
  run();
  const at::Tensor x = floats().abs();
  const at::Tensor normal = x.masked_select(x >= std::numeric_limits<float>::min());
  const at::Tensor flushed = quantized(normal, e4m3);
  _mm_setcsr(before);
  EXPECT_TRUE(same_bits(flushed.view(at::kByte), quantized(normal, e4m3).view(at::kByte)));
#endif
}

}  // namespace
}  // namespace troupe
