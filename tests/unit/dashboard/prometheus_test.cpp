#include "tools/dashboard/prometheus.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* two_ranks = R"({"view": {"step": 7, "last_step": 100, "epoch": 2, "respawns": 1, "rollbacks": 3, "seconds_since_step": 0.5, "ranks": [
  {"rank": 0, "step": 7, "resident_bytes": 1000, "silent_seconds": 0.25}, {"rank": 1, "step": 6, "resident_bytes": 2000, "silent_seconds": 4.5}]}})";

TEST(Prometheus, TellsOfTheJobItsStepAndItsRanks) {
  const std::vector<StepTimes::Entry> times{{Step{7}, {{Rank{0}, std::chrono::milliseconds{20}}, {Rank{1}, std::chrono::milliseconds{25}}}}};
  const std::string text = prometheus_text(two_ranks, R"({"loss": 2.5, "tokens": 4096, "mfu": null, "wait_batch_seconds": 0.125})", 3, times);
  for (const char* line :
       {"# TYPE troupe_step gauge\ntroupe_step 7\n", "troupe_loss 2.5\n", "# TYPE troupe_tokens_total counter\ntroupe_tokens_total 4096\n",
        "troupe_mfu_percent NaN\n", "troupe_wait_seconds{for=\"batch\"} 0.125\n", "troupe_rank_step{rank=\"1\"} 6\n",
        "troupe_rank_step_seconds{rank=\"1\"} 0.025\n", "troupe_steps_not_committed_total 3\n", "troupe_rank_silent_seconds{rank=\"1\"} 4.5\n"})
    EXPECT_THAT(text, HasSubstr(line));
}

TEST(Prometheus, TellsTheLossOfEachSourceOfABlend) {
  const std::string text = prometheus_text(two_ranks, R"({"loss": 2.5, "source_loss": [2.25, null], "source_tokens": [64, 0]})", 0, {});
  for (const char* line : {"# TYPE troupe_source_loss gauge\ntroupe_source_loss{source=\"1\"} 2.25\ntroupe_source_loss{source=\"2\"} NaN\n",
                           "troupe_source_tokens{source=\"1\"} 64\ntroupe_source_tokens{source=\"2\"} 0\n"})
    EXPECT_THAT(text, HasSubstr(line));
}

TEST(Prometheus, BeforeTheFirstStepTellsOfNoLoss) {
  const std::string text = prometheus_text(two_ranks, "", 0, {});
  EXPECT_THAT(text, Not(HasSubstr("troupe_loss")));
  EXPECT_THAT(text, HasSubstr("troupe_epoch 2\n"));
}

}  // namespace
}  // namespace troupe
