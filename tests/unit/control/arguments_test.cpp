#include <gtest/gtest.h>

#include "tools/commands/commands.hpp"

namespace troupe {
namespace {

TEST(SplitOverrides, KeepsKeysWithTheirValuesApartFromOptions) {
  const auto split =
      split_overrides({"train", "--training.steps", "5", "run.toml", "--nproc", "2", "--optimizer.lr=1e-3", "--checkpoint.enable", "--debug.seed", "-1"});
  EXPECT_EQ(split.rest, (std::vector<std::string>{"train", "run.toml", "--nproc", "2"}));
  EXPECT_EQ(split.overrides, (std::vector<std::string>{"--training.steps", "5", "--optimizer.lr=1e-3", "--checkpoint.enable", "--debug.seed", "-1"}));
}

TEST(SplitOverrides, TakesAConfigurationAfterAFlagForAConfiguration) {
  const auto split = split_overrides({"train", "--checkpoint.enable", "run.toml"});
  EXPECT_EQ(split.rest, (std::vector<std::string>{"train", "run.toml"}));
}

TEST(SplitOverrides, TheConfigurationFileMayBeNamedAsTorchtitanNamesIt) {
  for (const std::vector<std::string>& spelled : std::vector<std::vector<std::string>>{{"train", "--job.config_file", "run.toml", "--training.steps=3"},
                                                                                       {"train", "--job.config-file=run.toml", "--training.steps=3"}}) {
    const auto split = split_overrides(spelled);
    EXPECT_EQ(split.rest, (std::vector<std::string>{"train", "run.toml"}));
    EXPECT_EQ(split.overrides, (std::vector<std::string>{"--training.steps=3"}));
  }
}

}  // namespace
}  // namespace troupe
