#include "src/optimizer/parameter_groups.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using testing::HasSubstr;

OptimizerSettings with(std::vector<std::string> lines, bool decay_vectors = true) {
  OptimizerSettings settings;
  settings.param_groups = std::move(lines);
  settings.decay_norms_and_biases = decay_vectors;
  return settings;
}

std::string problem_of(const std::string& line) {
  const auto groups = ParameterGroups::of(with({line}));
  return groups ? std::string() : groups.error().message;
}

constexpr AdamWSettings base{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};

TEST(ParameterGroups, WithoutAnyAllParametersDecayAsTorchtitans) {
  const ParameterGroups groups = ParameterGroups::of(with({})).value();
  EXPECT_EQ(groups.settings_of(base, "layers.0.attention_norm.weight", true).weight_decay, 0.1);
  EXPECT_EQ(groups.settings_of(base, "tok_embeddings.weight", false).weight_decay, 0.1);
}

TEST(ParameterGroups, NormsAndBiasesCanBeSparedTheDecay) {
  const ParameterGroups groups = ParameterGroups::of(with({}, false)).value();
  EXPECT_EQ(groups.settings_of(base, "layers.0.attention_norm.weight", true).weight_decay, 0);
  EXPECT_EQ(groups.settings_of(base, "layers.0.attention.wq.weight", false).weight_decay, 0.1);
}

TEST(ParameterGroups, TheFirstLineThatMatchesWins) {
  const ParameterGroups groups =
      ParameterGroups::of(
          with({"match=^output lr_factor=0.5 weight_decay=0", "match=wq|output beta1=0.8 beta2=0.99 eps=1e-6", "match=norm weight_decay=0.2"}, false))
          .value();
  const AdamWSettings output = groups.settings_of(base, "output.weight", false);
  EXPECT_EQ(output.at(1e-3).learning_rate, 5e-4);
  EXPECT_EQ(output.weight_decay, 0);
  EXPECT_EQ(output.beta1, 0.9);
  const AdamWSettings wq = groups.settings_of(base, "layers.1.attention.wq.weight", false);
  EXPECT_EQ(wq.at(1e-3).learning_rate, 1e-3);
  EXPECT_EQ(wq.beta1, 0.8);
  EXPECT_EQ(wq.beta2, 0.99);
  EXPECT_EQ(wq.eps, 1e-6);
  EXPECT_EQ(groups.settings_of(base, "norm.weight", true).weight_decay, 0.2) << "a line wins over the rule for vectors";
}

TEST(ParameterGroups, AMistakeNamesTheLineAndWhatMayStandThere) {
  EXPECT_THAT(problem_of("match=norm decay=0"), HasSubstr("\"match=norm decay=0\": unknown word \"decay\"; known are match, lr_factor"));
  EXPECT_THAT(problem_of("weight_decay=0"), HasSubstr("match=REGEX is missing"));
  EXPECT_THAT(problem_of("match=norm weight_decay=none"), HasSubstr("weight_decay=none is no number"));
  EXPECT_THAT(problem_of("match=norm beta1=1"), HasSubstr("beta1=1 is out of range"));
  EXPECT_THAT(problem_of("match=norm lr_factor=nan"), HasSubstr("out of range"));
  EXPECT_THAT(problem_of("match=( lr_factor=1"), HasSubstr("\"(\" is no regular expression"));
  EXPECT_THAT(problem_of("norm"), HasSubstr("\"norm\" is no word=value"));
}

TEST(ParameterGroups, APatternWithoutParametersIsFound) {
  const ParameterGroups groups = ParameterGroups::of(with({"match=wq lr_factor=2", "match=attention lr_factor=3", "match=bias lr_factor=1"})).value();
  EXPECT_EQ(groups.unused({"attention.wq", "attention.wk"}), "bias");
  EXPECT_EQ(groups.unused({"attention.wq", "bias"}), "attention") << "all of its parameters are an earlier line's";
}

}  // namespace
}  // namespace troupe
