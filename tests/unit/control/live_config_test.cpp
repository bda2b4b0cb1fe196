#include "tools/launcher/live_config.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

JobConfig config() {
  return JobConfig::parse("[optimizer]\nlr = 1e-3\n[lr_scheduler]\nwarmup_steps = 0\ndecay_ratio = 0.0\n[training]\nsteps = 100\n", "test").value();
}

TEST(LiveConfig, AChangeHoldsFromItsStepOnAndNotBefore) {
  LiveConfig live(config(), Step{0});
  ASSERT_TRUE(live.change({"optimizer.lr=1e-4"}, Step{7}));
  EXPECT_DOUBLE_EQ(live.learning_rate(Step{6}), 1e-3);
  EXPECT_DOUBLE_EQ(live.learning_rate(Step{7}), 1e-4);
  EXPECT_DOUBLE_EQ(live.learning_rate(Step{90}), 1e-4);
  ASSERT_TRUE(live.change({"optimizer.lr=1e-5"}, Step{20}));
  EXPECT_DOUBLE_EQ(live.learning_rate(Step{19}), 1e-4) << "what was agreed before stays: a step may run again";
  EXPECT_DOUBLE_EQ(live.learning_rate(Step{20}), 1e-5);
}

TEST(LiveConfig, PlannedChangesAreThoseMadeByHand) {
  LiveConfig live(config(), Step{0});
  ASSERT_TRUE(live.plan({"step=7 optimizer.lr=1e-4 lr_scheduler.min_lr_factor=0.5", "step=9 optimizer.lr=2e-4"}));
  EXPECT_DOUBLE_EQ(live.learning_rate(Step{6}), 1e-3);
  EXPECT_DOUBLE_EQ(live.learning_rate(Step{8}), 1e-4);
  EXPECT_DOUBLE_EQ(live.learning_rate(Step{9}), 2e-4);
}

TEST(LiveConfig, RefusesByNameWhatCannotBeChanged) {
  LiveConfig live(config(), Step{0});
  const auto problem = [&](const std::string& change) {
    const auto checked = live.check({change});
    return checked ? std::string{} : checked.error().message;
  };
  EXPECT_EQ(problem("optimizer.lr=1e-4"), "");
  EXPECT_NE(problem("debug.seed=3").find("debug.seed is frozen"), std::string::npos) << problem("debug.seed=3");
  EXPECT_NE(problem("runtime.device=cuda").find("runtime.device (epoch) cannot be changed in a live run: it is chosen when the processes start"),
            std::string::npos);
  EXPECT_NE(problem("metrics.disable_color_printing=true").find("(live) cannot be changed in a live run by this version"), std::string::npos);
  EXPECT_NE(problem("comm.train_timeout_seconds=7200").find("a live run takes 3600 at most"), std::string::npos);
  EXPECT_NE(problem("training.guard.nonfinite=rollback").find("the snapshots that they need are held from its start"), std::string::npos);
  EXPECT_NE(problem("runtime.device=cuda").find("`troupe set --help` lists the keys that can"), std::string::npos);
  EXPECT_LT(problem("runtime.device=cuda").size(), 220U) << "one sentence, no list";
  EXPECT_NE(problem("optimizer.lrr=1").find("did you mean optimizer.lr?"), std::string::npos) << problem("optimizer.lrr=1");
  EXPECT_NE(problem("optimizer.lr=fast").find("optimizer.lr"), std::string::npos);
  EXPECT_NE(problem("optimizer.lr").find("KEY=VALUE"), std::string::npos);
  EXPECT_FALSE(live.change({"optimizer.lr=1e-4", "debug.seed=3"}, Step{7})) << "all or none";
  EXPECT_DOUBLE_EQ(live.learning_rate(Step{8}), 1e-3);
  EXPECT_NE(live.plan({"step=0 optimizer.lr=1"}).error().message.find("steps count from 1"), std::string::npos);
}

TEST(LiveConfig, TheIntervalOfCheckpointsChangesToo) {
  JobConfig with = config();
  with.checkpoint.enable = true;
  with.checkpoint.interval = 10;
  LiveConfig live(with, Step{0});
  ASSERT_TRUE(live.change({"checkpoint.interval=4"}, Step{11}));
  EXPECT_TRUE(live.snapshot_due(Step{10}));
  EXPECT_FALSE(live.snapshot_due(Step{4}));
  EXPECT_TRUE(live.snapshot_due(Step{12}));
  EXPECT_FALSE(live.snapshot_due(Step{30}));
}

TEST(LiveConfig, TheRunsEndMovesAndItsLastCheckpointWithIt) {
  JobConfig with = config();
  with.checkpoint.enable = true;
  with.checkpoint.interval = 1000;
  with.checkpoint.last_save_model_only = true;
  LiveConfig live(with, Step{0});
  ASSERT_TRUE(live.change({"training.steps=50"}, Step{11}));
  EXPECT_EQ(live.last_step(Step{10}), Step{static_cast<std::uint64_t>(with.training.steps)});
  EXPECT_EQ(live.last_step(Step{11}), Step{50});
  EXPECT_TRUE(live.snapshot_due(Step{50}));
  EXPECT_EQ(live.next_epoch(Step{0}), Step{11}) << "ranks are told which checkpoint holds weights alone";
  EXPECT_TRUE(live.takes_epoch({"training.steps=60"}));
  EXPECT_FALSE(LiveConfig(config(), Step{0}).takes_epoch({"training.steps=60"})) << "without checkpoints nobody needs to be told";
  const auto refused = live.change({"training.steps=12"}, Step{13});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "training.steps = 12: step 13 is the first that can change, so the run ends with it at the earliest");
  EXPECT_EQ(live.last_step(Step{13}), Step{50});
}

TEST(LiveConfig, LimitsOnWaitingLinesOnTheConsoleAndTheGuardHoldFromTheirStepOn) {
  LiveConfig live(config(), Step{0});
  ASSERT_TRUE(live.change({"comm.train_timeout_seconds=7", "metrics.log_freq=3", "training.guard.nonfinite=stop"}, Step{5}));
  EXPECT_EQ(live.train_timeout(Step{5}), std::chrono::seconds{7});
  EXPECT_NE(live.train_timeout(Step{4}), std::chrono::seconds{7});
  EXPECT_EQ(live.log_freq(Step{5}), 3);
  EXPECT_NE(live.log_freq(Step{4}), 3);
  EXPECT_EQ(live.guard(Step{5}).nonfinite, "stop");
  EXPECT_EQ(live.guard(Step{4}).nonfinite, "skip");
}

std::vector<std::string> epoch_changes(const LiveConfig& live, Step first, std::uint32_t ranks) {
  auto changes = live.epoch_changes(first, ranks);
  return changes ? changes.value() : std::vector<std::string>{changes.error().message};
}

TEST(LiveConfig, AnEpochBeginsWithWhatTakesOneAndCarriesItOn) {
  LiveConfig live(config(), {.schedule_before = {}, .step = {}, .ranks = 4});
  ASSERT_TRUE(live.plan({"step=7 slots.weights=3", "step=9 optimizer.lr=1e-5", "step=20 training.local_batch_size=2 slots.weights=4"}));
  EXPECT_EQ(live.next_epoch(Step{0}), Step{7});
  EXPECT_EQ(live.next_epoch(Step{7}), Step{20}) << "a learning rate takes none";
  EXPECT_EQ(live.next_epoch(Step{20}), std::nullopt);
  EXPECT_EQ(epoch_changes(live, Step{6}, 4), std::vector<std::string>{});
  EXPECT_EQ(epoch_changes(live, Step{12}, 4), std::vector<std::string>{"slots.weights=3"});
  EXPECT_EQ(epoch_changes(live, Step{20}, 4), (std::vector<std::string>{"training.local_batch_size=2", "slots.weights=4"}));
  live.withdraw(Step{20});
  EXPECT_EQ(epoch_changes(live, Step{20}, 4), std::vector<std::string>{"slots.weights=3"});
  EXPECT_EQ(live.next_epoch(Step{7}), std::nullopt);
}

TEST(LiveConfig, WhatIsSetByHandHoldsOverWhatWasPlannedForLater) {
  LiveConfig live(config(), {.schedule_before = {}, .step = {}, .ranks = 4});
  ASSERT_TRUE(live.plan({"step=20 slots.weights=4 slots.batches=3"}));
  ASSERT_TRUE(live.change({"slots.weights=5"}, Step{9}));
  EXPECT_EQ(epoch_changes(live, Step{20}, 4), (std::vector<std::string>{"slots.weights=5", "slots.batches=3"}));
}

TEST(LiveConfig, OtherNumbersOfRanksKeepTheRowsOfAStepAndGetAMeshThatFits) {
  JobConfig replicated = config();
  replicated.training.local_batch_size = 2;
  replicated.parallelism.data_parallel_replicate_degree = 2;
  LiveConfig live(replicated, {.schedule_before = {}, .step = {}, .ranks = 4});
  EXPECT_EQ(epoch_changes(live, Step{1}, 4), std::vector<std::string>{});
  EXPECT_EQ(epoch_changes(live, Step{1}, 6), std::vector<std::string>{"training.global_batch_size=8"}) << "two replicas of three";
  EXPECT_EQ(epoch_changes(live, Step{1}, 3), (std::vector<std::string>{"training.global_batch_size=8", "parallelism.data_parallel_replicate_degree=1",
                                                                       "parallelism.data_parallel_shard_degree=3"}));
  EXPECT_EQ(live.epoch_config(Step{1}, 3)->micro_batches(3), 2);
}

TEST(LiveConfig, AMeshThatIsAskedForByNameIsNotFittedToTheRanks) {
  LiveConfig live(config(), {.schedule_before = {}, .step = {}, .ranks = 4});
  const auto asked = live.epoch_config_with({"parallelism.data_parallel_shard_degree=3"}, 2);
  ASSERT_FALSE(asked);
  EXPECT_NE(asked.error().message.find("but the world has 2 ranks"), std::string::npos) << asked.error().message;
  EXPECT_TRUE(live.epoch_config_with({"parallelism.data_parallel_replicate_degree=2"}, 2));
}

TEST(LiveConfig, RowsAreCountedWithTheBatchOfEachStep) {
  LiveConfig live(config(), {.schedule_before = {}, .step = Step{2}, .row = 100, .ranks = 2});  // 8 rows a rank
  ASSERT_TRUE(live.change({"training.global_batch_size=32"}, Step{5}));
  EXPECT_EQ(live.data_row(Step{2}), 100U);
  EXPECT_EQ(live.data_row(Step{4}), 132U);
  EXPECT_EQ(live.data_row(Step{6}), 196U);
}

}  // namespace
}  // namespace troupe
