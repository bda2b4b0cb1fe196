#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "src/config/job_config.hpp"
#include "tests/support/temporary_folder.hpp"

namespace troupe {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

const std::filesystem::path presets = std::filesystem::path(TROUPE_SOURCE_DIR) / "tests/data/presets";

/// Keys and values of torchtitan's presets, those of June 2025 and of v0.2.2.
std::vector<std::filesystem::path> all_presets() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(presets))
    if (entry.path().extension() == ".toml") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

JobConfig accepted(const std::filesystem::path& file, const std::vector<std::string>& overrides = {}) {
  auto config = JobConfig::load(file, overrides);
  EXPECT_TRUE(config) << config.error().message;
  return config ? *config : JobConfig{};
}

TEST(Presets, EveryPresetOfBothTreesIsAcceptedAndEveryKeyOfItShownWithItsPlace) {
  ASSERT_EQ(all_presets().size(), 33U);
  for (const auto& file : all_presets()) {
    const JobConfig config = accepted(file);
    std::size_t written = 0, shown = 0;
    const std::string text = testing::read_file(file), table = config.table();
    for (std::size_t at = 0; (at = text.find(" = ", at)) != std::string::npos; ++at) ++written;
    for (std::size_t at = 0; (at = table.find(file.string() + ":", at)) != std::string::npos; ++at) ++shown;
    EXPECT_EQ(shown, written) << file;
    EXPECT_EQ(accepted(file).to_toml(), JobConfig::parse(config.to_toml(), "merged")->to_toml()) << file;
  }
}

TEST(Presets, BothSpellingsOfTheSameTrainingGiveTheSameValues) {
  for (const char* name : {"llama3_8b.toml", "llama3_70b.toml", "llama3_405b.toml"}) {
    const JobConfig june = accepted(presets / "june-2025" / name), later = accepted(presets / "v0.2.2" / name);
    for (const JobConfig* config : {&june, &later}) {
      EXPECT_EQ(config->model.name, "llama3");
      EXPECT_THAT(config->float8.filter_fqns, ::testing::ElementsAre("output"));
    }
    EXPECT_EQ(june.model.flavor, later.model.flavor);
    EXPECT_EQ(june.optimizer.lr, later.optimizer.lr);
    EXPECT_EQ(june.lr_scheduler.warmup_steps, later.lr_scheduler.warmup_steps);
    EXPECT_EQ(june.training.seq_len, later.training.seq_len);
    EXPECT_EQ(june.training.steps, later.training.steps);
    EXPECT_EQ(june.float8.enable_fsdp_float8_all_gather, later.float8.enable_fsdp_float8_all_gather);
  }
}

TEST(Presets, ThoseOfParallelLayersAreRefusedByARunWithTheKeyAndItsPlace) {
  const JobConfig config = accepted(presets / "v0.2.2/llama3_70b.toml");
  ASSERT_FALSE(config.can_run());
  EXPECT_THAT(config.not_built, Contains(HasSubstr("llama3_70b.toml:")));
  EXPECT_THAT(config.not_built, Contains(HasSubstr("parallelism.tensor_parallel_degree = 8 is not built yet")));
  EXPECT_THAT(accepted(presets / "v0.2.2/qwen3_32b.toml").not_built, Contains(HasSubstr("model.name = \"qwen3\" is not built yet")));
}

TEST(Presets, TheCommandOfThePublishedMeasurementIsUnderstood) {
  const JobConfig config = accepted(presets / "june-2025/llama3_8b.toml",
                                    {"--model.converters=float8", "--float8.enable_fsdp_float8_all_gather", "--float8.precompute_float8_dynamic_scale_for_fsdp",
                                     "--float8.force_recompute_fp8_weight_in_bwd", "--profiling.profile_freq", "1000000", "--training.compile",
                                     "--training.local_batch_size=2", "--training.steps", "2000", "--metrics.enable_wandb"});
  EXPECT_TRUE(config.model.float8());
  EXPECT_EQ(config.training.steps, 2000);
  const JobConfig later =
      accepted(presets / "v0.2.2/llama3_8b.toml", {"--model.converters=quantize.linear.float8", "--quantize.linear.float8.enable_fsdp_float8_all_gather",
                                                   "--profiler.profile_freq", "1000000", "--compile.enable", "--training.local_batch_size=2"});
  EXPECT_TRUE(later.model.float8());
  EXPECT_TRUE(later.float8.enable_fsdp_float8_all_gather);
}

}  // namespace
}  // namespace troupe
