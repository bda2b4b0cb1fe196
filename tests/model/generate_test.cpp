#include "src/model/generate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/model/sample.hpp"
#include "tests/model/ranks.hpp"

namespace troupe::test {
namespace {

TrainingOptions one_rank() {
  TrainingOptions o;
  o.batch = {4, 48};
  return o;
}

TEST(Generate, KeptKeysAndValuesGiveTheTextThatTheWholeContextGives) {
  on_ranks(llama3("tiny"), one_rank(), [](RankContext& rank) {
    const auto attention = make_cpu_cached_attention();
    const std::vector<std::int32_t> prompt{5, 9, 2, 61, 33};
    EXPECT_EQ(generate(rank.model, rank.device, *attention, prompt, {.count = 60}), sample(rank.model, rank.device, prompt, {.count = 60, .temperature = 0}));
  });
}

TEST(Generate, ATokenThatStopsEndsTheTextAndEachIsToldAsItComes) {
  on_ranks(llama3("tiny"), one_rank(), [](RankContext& rank) {
    const auto attention = make_cpu_cached_attention();
    const std::vector<std::int32_t> prompt{5};
    const auto whole = generate(rank.model, rank.device, *attention, prompt, {.count = 10, .temperature = 1, .seed = 3});
    std::vector<std::int32_t> told;
    const auto cut =
        generate(rank.model, rank.device, *attention, prompt,
                 {.count = 10, .temperature = 1, .seed = 3, .stop_tokens = {whole[4]}, .told = [&](std::int32_t token) { told.push_back(token); }});
    const auto end = std::ranges::find(whole, whole[4]) - whole.begin() + 1;
    EXPECT_EQ(cut, std::vector<std::int32_t>(whole.begin(), whole.begin() + end));
    EXPECT_EQ(told, cut);
    EXPECT_NE(generate(rank.model, rank.device, *attention, prompt, {.count = 10, .temperature = 1, .seed = 4}), whole);
    EXPECT_THROW((void)generate(rank.model, rank.device, *attention, prompt, {.top_p = 0}), std::invalid_argument);
  });
}

TEST(Generate, TopPDrawsFromTheLikeliestAlone) {
  const std::vector<double> logits{std::log(0.1), std::log(0.5), std::log(0.15), std::log(0.25)};
  for (int i = 0; i < 100; ++i) {
    EXPECT_THAT(draw_token(logits, 1, 0.7, i / 100.0), testing::AnyOf(1, 3));
    EXPECT_EQ(draw_token(logits, 1, 0.4, i / 100.0), 1);
  }
  EXPECT_EQ(draw_token(logits, 1, 0.7, 0.66), 1);  // two thirds of what is left are token 1's
  EXPECT_EQ(draw_token(logits, 1, 0.7, 0.67), 3);
  EXPECT_EQ(draw_token(logits, 1, 1, 0.05), 0);
  EXPECT_EQ(draw_token(logits, 0, 1, 0.99), 1);
}

}  // namespace
}  // namespace troupe::test
