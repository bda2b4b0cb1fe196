#include <cmath>

#include "tests/kernels/kernel_test.hpp"

namespace troupe {
namespace {

class Memory : public KernelTest {};

TEST_F(Memory, FillSetsEveryElementOfEachType) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kDouble, at::kInt, at::kLong, at::kByte}) {
    const at::Tensor x = at::ones({3, 7}, type);
    kernels_.fill(stream_, view(x), 3.0);
    EXPECT_TRUE((x.to(at::kDouble) == 3.0).all().item<bool>());
    kernels_.fill(stream_, view(x), 0.0);
    EXPECT_TRUE((x.to(at::kDouble) == 0.0).all().item<bool>());
  }
}

TEST_F(Memory, CastRoundsAsTorchDoesForEveryPairOfTypes) {
  for (const at::ScalarType from : {at::kFloat, at::kBFloat16, at::kDouble}) {
    for (const at::ScalarType to : {at::kFloat, at::kBFloat16, at::kDouble}) {
      const at::Tensor x = random({5, 77}, from), y = at::empty({5, 77}, to);
      kernels_.cast(stream_, view(x), view(y));
      EXPECT_TRUE(same_bits(y, x.to(to)));
    }
  }
}

TEST_F(Memory, CastToBfloat16KeepsSpecialValues) {
  const at::Tensor x = at::tensor({0.0F, -0.0F, INFINITY, -INFINITY, 3.4e38F, 1e-40F, 1.00390625F, 1.01171875F}), y = at::empty({8}, at::kBFloat16);
  kernels_.cast(stream_, view(x), view(y));
  EXPECT_TRUE(same_bits(y, x.to(at::kBFloat16)));
  const at::Tensor nan = at::full({1}, std::nan("")), out = at::empty({1}, at::kBFloat16);
  kernels_.cast(stream_, view(nan.to(at::kFloat)), view(out));
  EXPECT_TRUE(out.isnan().item<bool>());
}

TEST_F(Memory, EqualTypesAreCopiedFp8Too) {
  const at::Tensor x = at::arange(200, at::kByte), y = at::empty({200}, at::kByte);
  TensorView from = view(x), to = view(y);
  from.dtype = to.dtype = DType::e4m3;
  kernels_.cast(stream_, from, to);
  EXPECT_TRUE(same_bits(x, y));
}

TEST_F(Memory, SumOfSquaresAddsInDoubleAndRepeats) {
  const at::Tensor x = random({1003}, at::kFloat);
  double once = 5, twice = 5;
  kernels_.sum_squares(stream_, view(x), &once);
  kernels_.sum_squares(stream_, view(x), &twice);
  EXPECT_NEAR(once - 5, x.to(at::kDouble).square().sum().item<double>(), 1e-9);
  EXPECT_EQ(once, twice);
  double tiny = 0;
  kernels_.sum_squares(stream_, view(at::full({10}, 1e-30F)), &tiny);
  EXPECT_NEAR(tiny, 1e-59, 1e-64) << "squares underflow in fp32";
}

}  // namespace
}  // namespace troupe
