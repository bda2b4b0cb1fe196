#include "src/model/sample.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/model/ranks.hpp"

namespace troupe::test {
namespace {

TrainingOptions one_rank() {
  TrainingOptions o;
  o.batch = {4, 48};
  return o;
}

/// 3, 4, 5 … 63, 0, 1 …: each token follows from the one before.
void count_up(Step step, std::uint64_t row, std::span<std::int32_t> tokens, std::span<std::int32_t> labels) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::int32_t>((step.value() * 11 + row * 17 + i) % 64);
    labels[i] = (tokens[i] + 1) % 64;
  }
}

TEST(Sample, ATrainedModelContinuesWhatItLearntPastTheLengthOfItsBatches) {
  on_ranks(llama3("tiny"), one_rank(), [](RankContext& rank) {
    PlainStep plain(rank.model, rank.device, rank.communicator, deal(one_rank(), count_up));
    for (std::uint64_t step = 1; step <= 150; ++step) (void)plain.run(EpochId{1}, Step{step}, 1e-2);
    const std::vector<std::int32_t> prompt{60};
    const auto text = sample(rank.model, rank.device, prompt, {.count = 60, .temperature = 0, .context = 40});
    ASSERT_EQ(text.size(), 60U);
    for (std::size_t i = 0; i < text.size(); ++i) EXPECT_EQ(text[i], static_cast<std::int32_t>((61 + i) % 64)) << i;
    EXPECT_THAT(sample(rank.model, rank.device, prompt, {.count = 60, .temperature = 0, .stop_token = 2}), testing::ElementsAre(61, 62, 63, 0, 1, 2));
  });
}

TEST(Sample, TheSeedDecidesTheText) {
  on_ranks(llama3("tiny"), one_rank(), [](RankContext& rank) {
    const std::vector<std::int32_t> prompt{1, 2, 3};
    const auto first = sample(rank.model, rank.device, prompt, {.count = 20, .seed = 1});
    EXPECT_EQ(sample(rank.model, rank.device, prompt, {.count = 20, .seed = 1}), first);
    EXPECT_NE(sample(rank.model, rank.device, prompt, {.count = 20, .seed = 2}), first);
  });
}

TEST(Sample, APromptThatCannotBeIsRefused) {
  on_ranks(llama3("tiny"), one_rank(), [](RankContext& rank) {
    EXPECT_THROW((void)sample(rank.model, rank.device, std::vector<std::int32_t>{}, {}), std::invalid_argument);
    EXPECT_THROW((void)sample(rank.model, rank.device, std::vector<std::int32_t>{64}, {}), std::invalid_argument);
  });
}

}  // namespace
}  // namespace troupe::test
