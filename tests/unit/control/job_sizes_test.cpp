#include "tools/launcher/job_sizes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/model/families.hpp"
#include "tools/launcher/job_setup.hpp"

namespace troupe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string problem(const std::vector<std::string>& keys) {
  const auto config = JobConfig::parse("[model]\nflavor = \"tiny\"\nvocab_size = 258\n", "test", keys);
  if (!config) return config.error().message;
  const auto fits = check_world(*config, 1);
  return fits ? std::string{} : fits.error().message;
}

TEST(JobSizes, WhatTheLargestModelsNeedIsAccepted) {
  EXPECT_EQ(problem({}), "");
  EXPECT_EQ(problem({"--model.flavor=405B", "--model.vocab_size=128256", "--training.seq_len=131072", "--training.local_batch_size=1"}), "");
  EXPECT_EQ(problem({"--training.local_batch_size=1", "--training.global_batch_size=16384"}), "");
}

TEST(JobSizes, AModelOfMoreBytesThanCanBeCountedIsRefusedWithItsSizes) {
  EXPECT_THAT(problem({"--model.n_layers=100000000"}), HasSubstr("model.n_layers: expected a value at least 1, at most 4096, found 100000000"));
  EXPECT_THAT(problem({"--model.dim=1048576", "--model.n_layers=4096"}), AllOf(HasSubstr("dim 1048576, 4096 layers"), HasSubstr("make model.dim")));
}

TEST(JobSizes, ABatchThatWouldWrapRoundIsRefusedAndNotTakenForASmallOne) {
  EXPECT_THAT(problem({"--training.local_batch_size=4294967297"}), HasSubstr("at most 1048576"));
  EXPECT_THAT(problem({"--training.local_batch_size=1048576", "--training.seq_len=16777216"}), HasSubstr("TiB of a rank for activations"));
}

TEST(JobSizes, MoreMicroBatchesThanAPlanHoldsAreRefusedWithTheirNumber) {
  EXPECT_THAT(problem({"--training.local_batch_size=1", "--training.global_batch_size=1000000000"}),
              AllOf(HasSubstr("is 1000000000 micro-batches of training.local_batch_size = 1"), HasSubstr("make global_batch_size smaller")));
}

}  // namespace
}  // namespace troupe
