#include <gtest/gtest.h>

#include <cmath>

#include "tests/model/ranks.hpp"

namespace troupe::test {
namespace {

TrainingOptions options(std::uint32_t world) {
  TrainingOptions o;
  o.batch = {4 / world, 16};
  o.world = world;
  return o;
}

std::vector<float> values_of(const StateTensors& tensors, const std::string& name) {
  for (const StateTensor& t : tensors) {
    if (t.name == name) return {t.view.as<const float>(), t.view.as<const float>() + t.view.shape.elements()};
  }
  ADD_FAILURE() << name << " is not there";
  return {};
}

void steps(RankContext& rank, std::uint64_t last, const std::function<void(Step)>& after) {
  PlainStep plain(rank.model, rank.device, rank.communicator, deal(rank.model.options(), markov_rows(64)));
  for (Step step{1}; step.value() <= last; ++step) {
    (void)plain.run(EpochId{1}, step, 1e-3);
    after(step);
  }
}

TEST(OptimizerOptions, AveragesFollowTheWeightsByTheirDecayAndDoNotTouchTraining) {
  for (const std::uint32_t world : {1U, 2U}) {
    TrainingOptions averaged = options(world);
    averaged.ema_decay = 0.75;
    const std::string name = "layers.1.feed_forward.w2.weight";
    on_ranks(llama3("tiny"), averaged, [&](RankContext& rank) {
      std::vector<double> want;
      for (const float value : values_of(rank.model.state(), name)) want.push_back(value);
      steps(rank, 5, [&](Step) {
        const auto weights = values_of(rank.model.state(), name), average = values_of(rank.model.averages(), name);
        for (std::size_t i = 0; i < want.size(); ++i) {
          want[i] = 0.75 * want[i] + 0.25 * static_cast<double>(weights[i]);
          ASSERT_NEAR(average[i], want[i], 1e-7);
        }
      });
      EXPECT_NE(values_of(rank.model.averages(), name), values_of(rank.model.state(), name));
    });
    const auto with = train(llama3("tiny"), averaged, markov_rows(64), 5, 1e-3), without = train(llama3("tiny"), options(world), markov_rows(64), 5, 1e-3);
    for (std::size_t i = 0; i < with.size(); ++i) EXPECT_EQ(with[i].verdict.grad_norm, without[i].verdict.grad_norm);
  }
}

TEST(OptimizerOptions, AveragesAreStateUnderNamesOfTheirOwn) {
  TrainingOptions averaged = options(1);
  averaged.ema_decay = 0.9;
  on_ranks(llama3("tiny"), averaged, [&](RankContext& rank) {
    std::size_t found = 0, weights = 0;
    for (const StateTensor& t : rank.model.state()) {
      weights += t.model ? 1 : 0;
      if (!t.name.starts_with("optimizer.ema.")) continue;
      ++found;
      EXPECT_FALSE(t.model);
    }
    EXPECT_EQ(found, weights);
    EXPECT_EQ(rank.model.averages().size(), weights);
  });
  on_ranks(llama3("tiny"), options(1), [](RankContext& rank) { EXPECT_TRUE(rank.model.averages().empty()); });
}

TEST(OptimizerOptions, AGroupWithoutALearningRateStaysAndTheOthersTrain) {
  OptimizerSettings settings;
  settings.param_groups = {"match=^layers\\.0\\. lr_factor=0"};
  TrainingOptions o = options(1);
  o.groups = ParameterGroups::of(settings).value();
  on_ranks(llama3("tiny"), o, [](RankContext& rank) {
    const auto frozen = values_of(rank.model.state(), "layers.0.attention.wq.weight"), free = values_of(rank.model.state(), "layers.1.attention.wq.weight");
    steps(rank, 2, [](Step) {});
    EXPECT_EQ(values_of(rank.model.state(), "layers.0.attention.wq.weight"), frozen);
    EXPECT_NE(values_of(rank.model.state(), "layers.1.attention.wq.weight"), free);
  });
}

TEST(OptimizerOptions, WithoutDecayANormWithoutGradientKeepsItsValue) {
  OptimizerSettings settings;
  settings.decay_norms_and_biases = false;
  TrainingOptions spared = options(1);
  spared.groups = ParameterGroups::of(settings).value();
  spared.optimizer.weight_decay = 0.5;
  const FillRow nothing = [](Step, std::uint64_t, std::span<std::int32_t> tokens, std::span<std::int32_t> labels) {
    std::fill(tokens.begin(), tokens.end(), 1);
    std::fill(labels.begin(), labels.end(), -100);
  };
  on_ranks(llama3("tiny"), spared, [&](RankContext& rank) {
    PlainStep plain(rank.model, rank.device, rank.communicator, deal(rank.model.options(), nothing));
    const auto matrix = values_of(rank.model.state(), "layers.0.attention.wq.weight");
    (void)plain.run(EpochId{1}, Step{1}, 0.1);
    for (const float value : values_of(rank.model.state(), "layers.0.ffn_norm.weight")) EXPECT_EQ(value, 1.0F);
    EXPECT_FLOAT_EQ(values_of(rank.model.state(), "layers.0.attention.wq.weight")[0], 0.95F * matrix[0]);
  });
}

TEST(OptimizerOptions, ASkippedStepMovesNoAverage) {
  TrainingOptions o = options(1);
  o.ema_decay = 0.5;
  on_ranks(llama3("tiny"), o, [](RankContext& rank) {
    const auto before = values_of(rank.model.averages(), "norm.weight");
    for (const StateTensor& t : rank.model.state()) {
      if (t.name == "output.weight") t.view.as<float>()[0] = std::nanf("");
    }
    PlainStep plain(rank.model, rank.device, rank.communicator, deal(rank.model.options(), markov_rows(64)));
    EXPECT_EQ(plain.run(EpochId{1}, Step{1}, 1e-3).verdict.outcome, VerdictOutcome::skip);
    EXPECT_EQ(values_of(rank.model.averages(), "norm.weight"), before);
  });
}

}  // namespace
}  // namespace troupe::test
