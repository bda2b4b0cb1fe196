#include <stdexcept>

#include "tests/kernels/kernel_test.hpp"

namespace troupe {
namespace {

class Embedding : public KernelTest {};

TEST_F(Embedding, LooksRowsUpAndScattersTheirGradients) {
  for (const Precision& precision : precisions) {
    const at::Tensor tokens = at::tensor({3, 0, 3, 9, 3}, at::kInt), table = random({10, 13}, precision.type), dout = random({5, 13}, precision.type);
    const at::Tensor table64 = leaf(table), out64 = at::embedding(table64, tokens);
    out64.backward(dout.to(at::kDouble));
    const at::Tensor out = at::empty({5, 13}, precision.type), dtable = at::full({10, 13}, 99.0, precision.wide());
    kernels_.embedding(stream_, view(tokens), view(table), view(out));
    kernels_.embedding_backward(stream_, view(tokens), view(dout), view(dtable), false);
    EXPECT_EQ(relative_error(out, out64), 0.0);
    EXPECT_LT(relative_error(dtable, table64.grad()), precision.type == at::kDouble ? 1e-14 : 1e-6);
    kernels_.embedding_backward(stream_, view(tokens), view(dout), view(dtable), true);
    EXPECT_LT(relative_error(dtable, 2 * table64.grad()), precision.type == at::kDouble ? 1e-14 : 1e-6);
    const at::Tensor rounded = at::full({10, 13}, 99.0, precision.type);
    kernels_.embedding_backward(stream_, view(tokens), view(dout), view(rounded), false);
    EXPECT_LT(relative_error(rounded, table64.grad()), precision.tolerance) << "each sum rounded once";
  }
}

TEST_F(Embedding, SumsInTokenOrder) {
  // In fp32, 1 + 2^24 - 2^24 is 0 in this order and 1 in another.
  const at::Tensor tokens = at::zeros({3}, at::kInt), dout = at::tensor({1.0, 16777216.0, -16777216.0}, at::kFloat).reshape({3, 1}), dtable = at::empty({1, 1});
  kernels_.embedding_backward(stream_, view(tokens), view(dout), view(dtable), false);
  EXPECT_EQ(dtable.item<float>(), 0.0F);
}

TEST_F(Embedding, ATokenOutsideTheTableIsNamed) {
  const at::Tensor table = at::zeros({4, 2}), out = at::zeros({2, 2});
  for (const int bad : {4, -1}) {
    const at::Tensor tokens = at::tensor({0, bad}, at::kInt);
    try {
      kernels_.embedding(stream_, view(tokens), view(table), view(out));
      FAIL() << "token " << bad << " was taken";
    } catch (const std::out_of_range& error) {
      EXPECT_NE(std::string(error.what()).find("token " + std::to_string(bad) + " at position 1"), std::string::npos) << error.what();
    }
    EXPECT_THROW(kernels_.embedding_backward(stream_, view(tokens), view(out), view(table), false), std::out_of_range);
  }
}

}  // namespace
}  // namespace troupe
