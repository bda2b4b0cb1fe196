#include <gtest/gtest.h>

#include <cmath>
#include <iostream>

#include "tests/model/ranks.hpp"

namespace troupe::test {
namespace {

double mean_of_steps_151_to_200(bool float8) {
  TrainingOptions options;
  options.batch = {2, 128};
  options.compute = DType::bf16;
  options.float8 = {.enable = float8, .filter_fqns = {"output"}, .all_gather = true};
  const auto numbers = train(llama3("quickstart"), options, markov_rows(258), 200, 2e-3);
  double sum = 0;
  for (std::size_t i = 150; i < 200; ++i) sum += numbers[i].verdict.mean_loss;
  return sum / 50;
}

TEST(Float8Loss, OfTheQuickstartModelIsWithinOnePercentOfBf16sOverSteps151To200) {
  const double fp8 = mean_of_steps_151_to_200(true), bf16 = mean_of_steps_151_to_200(false);
  std::cout << "mean loss of steps 151-200: fp8 " << fp8 << ", bf16 " << bf16 << '\n';
  EXPECT_NEAR(fp8 / bf16, 1.0, 0.01);
  EXPECT_LT(bf16, std::log(258.0) - 1.0) << "nothing was learnt, so nothing was compared";
}

}  // namespace
}  // namespace troupe::test
