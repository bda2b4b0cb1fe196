#include "src/config/load_extension.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/model/extension.hpp"
#include "src/model/families.hpp"

namespace troupe {
namespace {

using ::testing::HasSubstr;

Result<JobConfig> loaded(const std::string& library, const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments{"--job.custom_import", std::string(EXTENSIONS) + "/" + library};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return with_extension(JobConfig::parse("", "", arguments));
}

std::string refusal(const std::string& library, const std::vector<std::string>& more = {}) {
  const auto config = loaded(library, more);
  return config ? "accepted" : config.error().message;
}

TEST(LoadExtension, AFamilyALossAndADataSetAreThereUnderTheirNames) {
  const auto config =
      loaded("small_extension.so", {"--model.name=parallel", "--model.flavor=small", "--training.loss=smoothed", "--training.dataset=counting"});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_TRUE(config->can_run());
  const auto model = describe_model(config->model, 258);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->name, "parallel small");
  EXPECT_EQ(model->units.size(), 4U);
  EXPECT_TRUE(config->model.extensions->losses.contains("smoothed"));
  EXPECT_EQ(config->data.dataset, "jsonl");
  EXPECT_THAT(config->data.dataset_path, ::testing::ElementsAre(HasSubstr("counting.jsonl")));
}

TEST(LoadExtension, WhatTheProgramHasItselfStaysThere) {
  const auto config = loaded("small_extension.so");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_TRUE(describe_model(config->model, 258));
  EXPECT_EQ(config->data.dataset, "text");
}

TEST(LoadExtension, NamesThatNobodyHasAreRefusedWithThoseThatAreThere) {
  EXPECT_THAT(refusal("small_extension.so", {"--model.name=mamba"}),
              HasSubstr("model.name is \"mamba\", which neither this program nor the library has; there are llama3, parallel"));
  EXPECT_THAT(refusal("small_extension.so", {"--training.loss=hinge"}), HasSubstr("there are cross_entropy, smoothed"));
  EXPECT_THAT(refusal("small_extension.so", {"--training.dataset=c4"}), HasSubstr("there are text, jsonl, counting"));
  EXPECT_THAT(JobConfig::parse("", "", {"--training.loss=hinge"})->can_run().error().message, HasSubstr("job.custom_import"));
}

TEST(LoadExtension, ALibraryThatDoesNotFitIsRefusedWithTheReason) {
  EXPECT_THAT(refusal("none.so"), HasSubstr("none.so\": cannot be loaded: "));
  EXPECT_THAT(refusal("broken_extension_0.so"), HasSubstr("it has no symbol troupe_extension_abi"));
  EXPECT_THAT(refusal("broken_extension_1.so"), HasSubstr("it was built for version 77 of src/model/extension.hpp, this program has 1"));
  EXPECT_THAT(refusal("broken_extension_2.so"), HasSubstr("it was built with compiler another compiler, this program with "));
  EXPECT_THAT(refusal("broken_extension_3.so"), HasSubstr("its types have other sizes"));
  EXPECT_THAT(refusal("broken_extension_4.so"), HasSubstr("it could not register: no licence"));
  EXPECT_THAT(refusal("broken_extension_5.so"), HasSubstr("it adds the family llama3, which is this program's own"));
}

}  // namespace
}  // namespace troupe
