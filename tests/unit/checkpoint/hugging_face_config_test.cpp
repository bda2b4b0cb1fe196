#include "src/checkpoint/hugging_face_config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/model/family_llama3.hpp"

namespace troupe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// TINY's config.json with more members.
std::string config_with(const std::string& more) {
  return R"({"model_type":"llama","vocab_size":64,"hidden_size":32,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
            "intermediate_size":96,"rms_norm_eps":1e-5,"rope_theta":500000.0,"max_position_embeddings":128)" +
         more + "}";
}

std::string refusal(const std::string& more) {
  const auto facts = read_model_facts(config_with(more), "llama3", "config.json");
  return facts ? "accepted" : facts.error().message;
}

TEST(HuggingFaceConfig, EveryIdThatEndsATextIsKept) {
  const auto eos_of = [](const std::string& more) { return read_model_facts(config_with(more), "llama3", "config.json")->eos; };
  EXPECT_THAT(eos_of(R"(,"eos_token_id":2)"), ElementsAre(2));
  EXPECT_THAT(eos_of(R"(,"eos_token_id":[128001,128008,128009])"), ElementsAre(128001, 128008, 128009));
  EXPECT_THAT(eos_of(R"(,"eos_token_id":[-1,3,18446744073709551615,2147483648,1.5,"4"])"), ElementsAre(3)) << "what cannot be an id is none";
  EXPECT_THAT(eos_of(R"(,"eos_token_id":null)"), IsEmpty());
  EXPECT_THAT(stop_tokens_of_generation_config(R"({"eos_token_id":[5,6]})"), ElementsAre(5, 6));
  EXPECT_THAT(stop_tokens_of_generation_config("[]"), IsEmpty());
  ModelFacts facts = *read_model_facts(config_with(R"(,"eos_token_id":[7,8])"), "llama3", "config.json");
  EXPECT_THAT(read_model_facts(write_model_facts(facts, "llama3", StoredType::f32), "llama3", "config.json")->eos, ElementsAre(7, 8));
}

TEST(HuggingFaceConfig, NumbersBeyondReasonAreRefused) {
  for (const char* number : {"18446744073709551615", "9223372036854775807", "2147483648", "-1", "0", "1.5", "\"8\""})
    EXPECT_THAT(refusal(std::string(R"(,"head_dim":)") + number), HasSubstr("expected a positive whole number")) << number;
  EXPECT_THAT(refusal(R"(,"rope_scaling":{"rope_type":"llama3","factor":-8,"original_max_position_embeddings":64})"), HasSubstr("expected a positive number"));
}

TEST(HuggingFaceConfig, TheSameModelHasNoDifferences) {
  const auto theirs = read_model_facts(config_with(""), "llama3", "config.json");
  ASSERT_TRUE(theirs) << theirs.error().message;
  EXPECT_THAT(differences(facts_of(describe_llama3(llama3_flavour("tiny").value())).value(), *theirs), IsEmpty());
  EXPECT_EQ(theirs->max_positions, 128);
}

TEST(HuggingFaceConfig, EachDifferenceIsNamedWithTheKeyToSet) {
  const auto theirs = read_model_facts(config_with(R"(,"tie_word_embeddings":true,"rope_scaling":{"type":"llama3","factor":8.0,"low_freq_factor":1.0,
      "high_freq_factor":4.0,"original_max_position_embeddings":64})"),
                                       "llama3", "config.json");
  ASSERT_TRUE(theirs) << theirs.error().message;
  auto flavour = llama3_flavour("tiny").value();
  flavour.rope_theta = 10000;
  flavour.ffn_hidden = 64;
  EXPECT_THAT(differences(facts_of(describe_llama3(flavour)).value(), *theirs),
              ElementsAre("model.ffn_hidden is 64 here, intermediate_size is 96 there", "model.rope_theta is 10000.0 here, rope_theta is 500000.0 there",
                          "model.tied_embeddings is false here, tie_word_embeddings is true there",
                          "model.rope_scaling_factor is 1.0 here, rope_scaling.factor is 8.0 there"));
  EXPECT_THAT(model_section(*theirs, "llama3"), HasSubstr("rope_scaling_factor = 8.0\n"));
}

TEST(HuggingFaceConfig, BothSpellingsOfTheScalingAreReadAndNewerFilesToo) {
  for (const char* block : {R"(,"rope_scaling":{"type":"llama3","factor":32,"original_max_position_embeddings":8192})",
                            R"(,"rope_scaling":{"rope_type":"llama3","factor":32,"original_max_position_embeddings":8192})",
                            R"(,"rope_parameters":{"rope_type":"llama3","rope_theta":500000.0,"factor":32,"original_max_position_embeddings":8192})"}) {
    const auto facts = read_model_facts(config_with(block), "llama3", "config.json");
    ASSERT_TRUE(facts) << facts.error().message;
    ASSERT_TRUE(facts->scaling) << block;
    EXPECT_EQ(facts->scaling->factor, 32);
  }
  EXPECT_THAT(refusal(R"(,"rope_scaling":{"rope_type":"yarn","factor":4})"), HasSubstr("rope_scaling is of the kind 'yarn'; known are llama3 and default"));
  EXPECT_THAT(refusal(R"(,"rope_scaling":{"rope_type":"llama3"})"), HasSubstr("factor is missing or below 1"));
}

TEST(HuggingFaceConfig, ScaledFrequenciesAreThoseOfTheFormula) {
  const RotarySettings rotary{.theta = 10000, .head_dim = 16, .scaled = true, .scaling = {8, 1, 4, 256}};
  const auto table = rotary_table(rotary, 2);
  const double expected[] = {1, .316228, .1, .00661311, .00125, .000395285, .000125, 3.95285e-05};
  for (std::size_t i = 0; i < 8; ++i)
    EXPECT_NEAR(std::atan2(table[16 + 2 * i + 1], table[16 + 2 * i]), expected[i], 1e-6 * expected[i] + 5e-7 * expected[i]) << i;  // the angle of position 1
}

TEST(HuggingFaceConfig, ModelsOfAnotherKindAreRefused) {
  EXPECT_THAT(refusal(R"(,"attention_bias":true)"), HasSubstr("attention_bias is true; this family has no biases"));
  EXPECT_THAT(refusal(R"(,"hidden_act":"gelu")"), HasSubstr("hidden_act is 'gelu', expected 'silu'"));
  EXPECT_THAT(refusal(R"(,"head_dim":16)"), HasSubstr("4 heads of 16 are not hidden_size = 32"));
  const std::string text = R"({"model_type":"gpt2","vocab_size":64})";
  EXPECT_THAT(read_model_facts(text, "llama3", "config.json").error().message, HasSubstr("model_type is 'gpt2', but model.name = \"llama3\" is 'llama'"));
  const std::string odd = R"({"vocab_size":64,"hidden_size":66,"num_hidden_layers":2,"num_attention_heads":33,"num_key_value_heads":2,"intermediate_size":-3})";
  const auto message = read_model_facts(odd, "llama3", "config.json").error().message;
  EXPECT_THAT(message, HasSubstr("num_attention_heads = 33 is no multiple of num_key_value_heads = 2"));
  EXPECT_THAT(message, HasSubstr("intermediate_size is -3, expected a positive whole number"));
}

}  // namespace
}  // namespace troupe
