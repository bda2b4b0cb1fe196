#include "tools/foresight/change_forecast.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

JobConfig small_job() {
  return JobConfig::parse(
             "[model]\nflavor = \"debugmodel\"\nvocab_size = 2048\nn_layers = 4\n[training]\nlocal_batch_size = 2\nseq_len = 1024\n[checkpoint]\nenable = "
             "false\n"
             "[slots]\nweights = 1\ngradients = 1\n",
             "test")
      .value();
}

SimulationOptions on_a_slow_network(std::uint32_t ranks) {
  SimulationOptions options;
  options.ranks = ranks;
  options.cluster = cluster_of("h200").value();
  options.cluster.network.intra_host_gbps = 1;
  options.cluster.recovery.build_seconds = 0.25;
  return options;
}

TEST(ChangeForecast, HasTheStepsOfBothConfigurationsAndWhatLiesBetween) {
  const SimulationOptions options = on_a_slow_network(4);
  const auto told = forecast_change(small_job(), options, {"slots.weights=2", "slots.gradients=2"});
  ASSERT_TRUE(told) << told.error().message;
  const auto before = simulate_run(small_job(), options);
  ASSERT_TRUE(before);
  EXPECT_EQ(told->before.step_seconds, before->step_seconds);
  EXPECT_LT(told->after.step_seconds, told->before.step_seconds);
  EXPECT_GT(told->after.estimate.memory.device(), told->before.estimate.memory.device());
  const double copied = static_cast<double>(state_bytes(before->estimate.job, before->estimate.training)) / (options.cluster.device.host_gbps * 1e9);
  EXPECT_NEAR(told->pause, 0.25 + 2 * copied, told->after.step_seconds)
      << "built anew, the state copied out and in, and a step that begins with nothing gathered";
  EXPECT_NEAR(told->made_up_after() * (told->before.step_seconds - told->after.step_seconds), told->pause, 0.01 * told->pause);
}

TEST(ChangeForecast, OfAnotherMeshAndBatchCountsTokens) {
  const auto told = forecast_change(small_job(), on_a_slow_network(4), {"parallelism.data_parallel_replicate_degree=2", "training.global_batch_size=16"});
  ASSERT_TRUE(told) << told.error().message;
  EXPECT_EQ(told->after.estimate.job.options.replicas, 2U);
  EXPECT_EQ(told->after.estimate.job.options.micro_batches, 2U);
  EXPECT_NE(change_forecast_text(*told).find("by a new epoch between two steps of 4 ranks"), std::string::npos);
}

TEST(ChangeForecast, RefusesWhatALiveRunRefusesAndWhatChangesNoPlan) {
  const SimulationOptions options = on_a_slow_network(2);
  const auto frozen = forecast_change(small_job(), options, {"model.dim=64"});
  ASSERT_FALSE(frozen);
  EXPECT_NE(frozen.error().message.find("model.dim is frozen"), std::string::npos) << frozen.error().message;
  const auto one_step = forecast_change(small_job(), options, {"optimizer.lr=1e-4"});
  ASSERT_FALSE(one_step);
  EXPECT_NE(one_step.error().message.find("steps take as long as before"), std::string::npos) << one_step.error().message;
}

TEST(ChangeForecast, SaysWhereTooFewRanksStandForAll) {
  SimulationOptions options = on_a_slow_network(16);
  options.unfolded = 8;
  const auto told = forecast_change(small_job(), options, {"parallelism.data_parallel_replicate_degree=2"});
  ASSERT_FALSE(told);
  EXPECT_NE(told.error().message.find("raise --unfolded to simulate all 16"), std::string::npos) << told.error().message;
}

}  // namespace
}  // namespace troupe
