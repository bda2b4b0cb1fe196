#include "tools/launcher/kernel_scratch.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "src/model/family_llama3.hpp"

namespace troupe::test {
namespace {

constexpr std::size_t products_workspace = std::size_t{64} << 20U;

struct Linear {
  std::size_t in, out;
};

std::size_t scratch(const Llama3Flavour& flavour, std::uint32_t tokens, Float8Recipe recipe) {
  TrainingOptions options;
  options.batch = {1, tokens};
  options.compute = DType::bf16;
  options.float8 = {.enable = true, .filter_fqns = {"output"}, .recipe = recipe};
  return kernel_scratch_of(estimate_training(describe_llama3(flavour), options));
}

/// Both operands of the largest product in bf16: x and w, dy and w, and dy and x where the gradient of a weight is of fp8.
std::size_t largest_product(const std::vector<Linear>& linears, std::size_t tokens, bool weight_gradients) {
  std::size_t most = 0;
  for (const auto& [in, out] : linears) most = std::max({most, tokens * in + out * in, tokens * out + out * in, weight_gradients ? tokens * (out + in) : 0});
  return 2 * most;
}

TEST(KernelScratch, OfTheRowWiseRecipesHoldsTheOperandsOfTheLargestProductOrAttentionsSums) {
  Llama3Flavour flavour = llama3_flavour("8B").value();
  flavour.layers = 2;
  const std::vector<Linear> linears{{4096, 4096}, {4096, 1024}, {4096, 14336}, {14336, 4096}};
  for (const std::uint32_t tokens : {512U, 8192U}) {
    EXPECT_EQ(scratch(flavour, tokens, Float8Recipe::rowwise), products_workspace + largest_product(linears, tokens, true)) << tokens;
    EXPECT_EQ(scratch(flavour, tokens, Float8Recipe::rowwise_with_gw_hp), products_workspace + largest_product(linears, tokens, false)) << tokens;
  }
  flavour.ffn_hidden = 4096;
  const std::size_t sums = std::size_t{8192} * 4096 * 8;  // dq in fp32, dk and dv of every head in bf16
  EXPECT_EQ(scratch(flavour, 8192, Float8Recipe::rowwise), products_workspace + sums);
}

// The second layouts of a value and of a gradient, and of a weight or attention's sums in its place: 1.002 GiB were measured on a GPU.
TEST(KernelScratch, OfTensorWiseScalesHoldsTheSecondLayouts) {
  Llama3Flavour flavour = llama3_flavour("8B").value();
  flavour.layers = 2;
  const std::size_t tokens = 16384, widest = tokens * 14336, sums = tokens * 4096 * 8;
  EXPECT_EQ(scratch(flavour, tokens, Float8Recipe::tensorwise), products_workspace + 2 * widest + sums);
}

}  // namespace
}  // namespace troupe::test
