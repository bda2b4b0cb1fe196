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

}  // namespace
}  // namespace troupe
