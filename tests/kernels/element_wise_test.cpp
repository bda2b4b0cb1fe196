#include "tests/kernels/kernel_test.hpp"

namespace troupe {
namespace {

class Rotary : public KernelTest {
 protected:
  static at::Tensor table(std::int64_t positions, std::int64_t width, at::ScalarType type) {
    const at::Tensor frequencies = at::pow(10000.0, -at::arange(0, width, 2, at::kDouble) / static_cast<double>(width));
    const at::Tensor angles = at::outer(at::arange(positions, at::kDouble), frequencies);
    return at::stack({angles.cos(), angles.sin()}, -1).to(type).contiguous();
  }
  /// As complex numbers, which is how Llama's reference code writes it.
  static at::Tensor formula(const at::Tensor& x, std::int64_t positions) {
    const std::int64_t tokens = x.size(0), heads = x.size(1), width = x.size(2);
    const at::Tensor angles = table(positions, width, at::kDouble).index_select(0, at::arange(tokens, at::kLong).remainder(positions)).unsqueeze(1);
    return at::view_as_real(at::view_as_complex(x.reshape({tokens, heads, width / 2, 2})) * at::view_as_complex(angles)).reshape(x.sizes());
  }
};

TEST_F(Rotary, TurnsNeighbouringPairsByTheAngleOfThePosition) {
  for (const Precision& precision : precisions) {
    for (const auto& [heads, width] : std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 2}, {3, 8}, {2, 64}, {1, 6}, {1, 128}}) {
      const at::Tensor x = random({10, heads, width}, precision.type);
      const at::Tensor expected = formula(x.to(at::kDouble), 5);
      kernels_.rotary(stream_, view(x), view(table(5, width, precision.wide())), false);
      EXPECT_LT(relative_error(x, expected), precision.tolerance);
    }
  }
}

TEST_F(Rotary, TheInverseIsTheBackward) {
  const at::Tensor x = random({6, 2, 10}, at::kDouble), dy = random({6, 2, 10}, at::kDouble), x64 = leaf(x);
  formula(x64, 3).backward(dy);
  const at::Tensor dx = dy.clone();
  kernels_.rotary(stream_, view(dx), view(table(3, 10, at::kDouble)), true);
  EXPECT_LT(relative_error(dx, x64.grad()), 1e-14);
}

class Swiglu : public KernelTest {};

TEST_F(Swiglu, ForwardAndBackwardAgreeWithAutograd) {
  for (const Precision& precision : precisions) {
    for (const std::int64_t columns : {1, 5, 64, 171}) {
      const at::Tensor gate = random({3, columns}, precision.type) * 4, up = random({3, columns}, precision.type), dout = random({3, columns}, precision.type);
      const at::Tensor gate64 = leaf(gate), up64 = leaf(up), out64 = at::silu(gate64) * up64;
      out64.backward(dout.to(at::kDouble));
      const at::Tensor out = at::empty_like(gate), dgate = at::empty_like(gate), dup = at::empty_like(gate);
      kernels_.swiglu(stream_, view(gate), view(up), view(out));
      kernels_.swiglu_backward(stream_, view(dout), view(gate), view(up), view(dgate), view(dup));
      EXPECT_LT(relative_error(out, out64), precision.tolerance);
      EXPECT_LT(relative_error(dgate, gate64.grad()), precision.tolerance);
      EXPECT_LT(relative_error(dup, up64.grad()), precision.tolerance);
    }
  }
}

TEST_F(Swiglu, LargeGatesSaturateWithoutNan) {
  const at::Tensor gate = at::tensor({-1e30, -200.0, -88.0, 0.0, 88.0, 200.0, 1e30}, at::kFloat), up = at::ones({7}), out = at::empty({7});
  kernels_.swiglu(stream_, view(gate), view(up), view(out));
  EXPECT_TRUE(at::isfinite(out).all().item<bool>());
  EXPECT_EQ(out[0].item<float>(), 0.0F);
  EXPECT_EQ(out[6].item<float>(), 1e30F);
  const at::Tensor dgate = at::empty({7}), dup = at::empty({7});
  kernels_.swiglu_backward(stream_, view(up), view(gate), view(up), view(dgate), view(dup));
  EXPECT_TRUE(at::isfinite(dgate).all().item<bool>());
  EXPECT_TRUE(at::isfinite(dup).all().item<bool>());
}

TEST_F(Swiglu, TheExponentialIsGoodToTwoUnitsInTheLastPlace) {
  // out / gate is the sigmoid; near its tail it is the exponential itself.
  const at::Tensor gate = at::linspace(-87, 20, 20001, at::kFloat), up = at::ones({20001}), out = at::empty({20001});
  kernels_.swiglu(stream_, view(gate), view(up), view(out));
  const at::Tensor exact = at::silu(gate.to(at::kDouble));
  const double worst = ((out.to(at::kDouble) - exact).abs() / exact.abs().clamp_min(1e-37)).max().item<double>();
  EXPECT_LT(worst, 6e-7);
}

class Add : public KernelTest {};

TEST_F(Add, SumsAndMayOverwriteAnInput) {
  for (const Precision& precision : precisions) {
    const at::Tensor a = random({3, 37}, precision.type), b = random({3, 37}, precision.type), out = at::empty_like(a);
    const at::Tensor expected = a.to(at::kDouble) + b.to(at::kDouble);
    kernels_.add(stream_, view(a), view(b), view(out));
    EXPECT_LT(relative_error(out, expected), precision.tolerance);
    EXPECT_TRUE(same_bits(out, expected.to(at::kFloat).to(precision.type)) || precision.type == at::kDouble);
    kernels_.add(stream_, view(a), view(b), view(a));
    EXPECT_TRUE(same_bits(a, out));
  }
}

}  // namespace
}  // namespace troupe
