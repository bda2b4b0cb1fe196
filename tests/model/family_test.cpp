#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "src/model/families.hpp"
#include "src/model/family_llama3.hpp"
#include "src/model/initialise.hpp"

namespace troupe {
namespace {

using testing::HasSubstr;

ModelDescription model(const char* flavour) { return describe_llama3(llama3_flavour(flavour).value()); }

// Parameter counts and FLOPs per token: torchtitan's formulas at vocabulary 128,256 and sequence length 8192.
TEST(Llama3Family, ParameterCountsAreTorchtitans) {
  EXPECT_EQ(model("debugmodel").parameter_count(), 6'163'712);
  EXPECT_EQ(model("1B").parameter_count(), 1'235'814'400);
  EXPECT_EQ(model("3B").parameter_count(), 3'212'749'824);
  EXPECT_EQ(model("8B").parameter_count(), 8'030'261'248);
  EXPECT_EQ(model("70B").parameter_count(), 70'553'706'496);
  EXPECT_EQ(model("405B").parameter_count(), 405'853'388'800);
}

TEST(Llama3Family, FlopsPerTokenAreTorchtitans) {
  EXPECT_EQ(model("1B").flops_per_token(8192), 9'060'102'144.0);
  EXPECT_EQ(model("8B").flops_per_token(8192), 57'914'449'920.0);
  EXPECT_EQ(model("8B").causal_flops_per_token(8192), 45'029'548'032.0 + 6.0 * 32 * 32 * 128 * 8193);
  EXPECT_EQ(model("70B").flops_per_token(8192), 481'442'709'504.0);
  EXPECT_EQ(model("405B").flops_per_token(8192), 2'625'449'459'712.0);
}

TEST(Llama3Family, TheQuickstartModelHasAboutThreeAndAHalfMillionParameters) {
  EXPECT_EQ(model("quickstart").parameter_count(), 3'280'128);
  EXPECT_EQ(model("quickstart").units.size(), 6U);
}

TEST(Llama3Family, ParametersHaveTorchtitansNames) {
  std::vector<std::string> names;
  for (const UnitDescription& unit : model("tiny").units) {
    for (const ParameterDescription& p : unit.parameters) names.push_back(p.name);
  }
  EXPECT_THAT(names,
              testing::IsSupersetOf({"tok_embeddings.weight", "layers.1.attention.wq.weight", "layers.0.attention.wo.weight", "layers.0.feed_forward.w3.weight",
                                     "layers.1.attention_norm.weight", "layers.1.ffn_norm.weight", "norm.weight", "output.weight"}));
  EXPECT_EQ(names.size(), 1 + 2 * 9 + 2U);
}

TEST(Llama3Family, AnUnknownFlavourIsRefusedWithTheList) {
  ModelSettings settings;
  settings.flavor = "9B";
  EXPECT_THAT(describe_model(settings, std::nullopt).error().message, testing::AllOf(HasSubstr("\"9B\""), HasSubstr("8B"), HasSubstr("quickstart")));
}

TEST(Llama3Family, SectionModelReplacesTheFlavoursSizes) {
  ModelSettings settings;
  settings.flavor = "debugmodel";
  settings.n_layers = 2;
  settings.ffn_hidden = 100;
  const ModelDescription described = describe_model(settings, 258).value();
  EXPECT_EQ(described.layers, 2);
  EXPECT_EQ(described.vocab_size, 258);
  EXPECT_EQ(described.units[1].parameters[4].rows, 100);
  settings.n_heads = 3;
  EXPECT_THAT(describe_model(settings, 258).error().message, HasSubstr("n_heads must divide dim"));
  settings.n_heads = 16;
  settings.vocab_size = 100;
  EXPECT_THAT(describe_model(settings, 258).error().message, HasSubstr("the tokenizer has 258"));
}

TEST(Llama3Family, LongRotaryWavelengthsAreStretchedByTheFactorAndShortOnesStay) {
  RotarySettings plain{.theta = 500000, .head_dim = 128, .scaled = false, .scaling = {8, 1, 4, 8192}};
  RotarySettings scaled = plain;
  scaled.scaled = true;
  const auto angle = [](const RotarySettings& s, std::size_t pair) { return std::asin(rotary_table(s, 2)[128 + 2 * pair + 1]); };
  EXPECT_DOUBLE_EQ(angle(scaled, 3), angle(plain, 3));
  EXPECT_NEAR(angle(scaled, 63), angle(plain, 63) / 8, 1e-15);
}

double deviation(const std::vector<float>& values) {
  double square = 0;
  for (const float v : values) square += double{v} * double{v};
  return std::sqrt(square / static_cast<double>(values.size()));
}

TEST(Initialisation, StandardDeviationsAreTorchtitans) {
  const ModelDescription debug = model("debugmodel");
  const auto measured = [&](std::size_t unit, std::size_t parameter) {
    const ParameterDescription& p = debug.units[unit].parameters[parameter];
    std::vector<float> values(static_cast<std::size_t>(std::min<std::int64_t>(p.elements(), 60000)));
    InitialValues(p.initialisation, 3, p.name).fill(0, values);
    return deviation(values);
  };
  enum { wq, wk, wv, wo, w1, w2, w3, attention_norm };
  EXPECT_NEAR(measured(0, 0), 1.0, 0.02);
  EXPECT_NEAR(measured(4, wq), 0.02, 0.0004);
  EXPECT_NEAR(measured(4, w1), 0.02, 0.0004);
  for (const std::size_t depth_scaled : {std::size_t{wo}, std::size_t{w2}, std::size_t{w3}})
    EXPECT_NEAR(measured(4, depth_scaled), 0.02 / std::sqrt(8.0), 0.0002);
  EXPECT_EQ(measured(4, attention_norm), 1.0);
  EXPECT_NEAR(measured(7, 1), 0.9866 / 16, 0.001);  // a normal cut at ±3σ has 0.9866 σ
}

TEST(Initialisation, TheHeadIsCutAtThreeDeviations) {
  const Initialisation rule{.std = 0.0625, .cut = 3 * 0.0625};
  std::vector<float> values(200000);
  InitialValues(rule, 1, "output.weight").fill(0, values);
  EXPECT_LE(*std::max_element(values.begin(), values.end()), 0.1875F);
  EXPECT_GT(*std::max_element(values.begin(), values.end()), 0.17F);
  EXPECT_GE(*std::min_element(values.begin(), values.end()), -0.1875F);
}

TEST(Initialisation, ManyValuesAtOnceAreTheSameBitForBit) {
  for (const Initialisation& rule : {Initialisation{.std = 1, .cut = 0}, Initialisation{.std = 0.02, .cut = 2}, Initialisation{.std = 0.5, .cut = 0.6}}) {
    const InitialValues values(rule, 5, "a");
    std::vector<float> many(1000);
    values.fill(77, many);
    for (std::size_t i = 0; i < many.size(); ++i) ASSERT_EQ(many[i], values.at(77 + i)) << i;
  }
}

TEST(Initialisation, AValueDependsOnSeedNameAndIndexAlone) {
  const Initialisation rule{.std = 1, .cut = 0};
  const InitialValues values(rule, 5, "a");
  std::vector<float> part(3);
  values.fill(10, part);
  EXPECT_EQ(part[2], values.at(12));
  EXPECT_NE(values.at(12), InitialValues(rule, 6, "a").at(12));
  EXPECT_NE(values.at(12), InitialValues(rule, 5, "b").at(12));
}

}  // namespace
}  // namespace troupe
