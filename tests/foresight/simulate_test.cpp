#include "tools/foresight/simulate.hpp"

#include <gtest/gtest.h>

#include "tools/foresight/fault_forecast.hpp"
#include "tools/foresight/plan_search.hpp"
#include "tools/foresight/profile.hpp"

namespace troupe {
namespace {

JobConfig small_job(const std::string& more = "") {
  const std::string text =
      "[model]\nflavor = \"debugmodel\"\nvocab_size = 2048\nn_layers = 4\n[training]\nlocal_batch_size = 2\nseq_len = 1024\n[checkpoint]\nenable = false\n" +
      more;
  return JobConfig::parse(text, "test").value();
}

SimulationOptions on_h200(std::uint32_t ranks, std::uint32_t unfolded) {
  SimulationOptions options;
  options.ranks = ranks;
  options.cluster = cluster_of("h200").value();
  options.cluster.network.ranks_per_host = 2;
  options.unfolded = unfolded;
  return options;
}

TEST(Simulate, FoldedWorldsTakeToTheNanosecondWhatAllTheirRanksTake) {
  for (const char* replicas : {"1", "2", "4", "8"}) {
    const JobConfig config = small_job(std::string("[parallelism]\ndata_parallel_replicate_degree = ") + replicas + "\n");
    const auto all = simulate_run(config, on_h200(8, 64)), folded = simulate_run(config, on_h200(8, 4));
    ASSERT_TRUE(all) << all.error().message;
    ASSERT_TRUE(folded) << folded.error().message;
    EXPECT_EQ(all->simulated, 8U);
    EXPECT_LE(folded->simulated, 4U);
    EXPECT_EQ(all->step_seconds, folded->step_seconds) << replicas << " replicas";
    EXPECT_EQ(all->compute_busy, folded->compute_busy);
  }
}

TEST(Simulate, MoreSlotsHideMoreOfTheCollectives) {
  SimulationOptions slow = on_h200(4, 64);
  slow.cluster.network.intra_host_gbps = slow.cluster.network.nic_gbps = 1;
  const auto one = simulate_run(small_job("[slots]\nweights = 1\ngradients = 1\n"), slow), two = simulate_run(small_job(), slow);
  ASSERT_TRUE(one && two);
  EXPECT_EQ(one->overlap.gathers_under_forwards, 0);
  EXPECT_GT(two->overlap.gathers_under_forwards, 0);
  EXPECT_LT(two->step_seconds, one->step_seconds);
}

TEST(Simulate, FactorsOfAProfileStandInTheSimulatedDurations) {
  const JobConfig config = small_job();
  SimulationOptions options = on_h200(2, 64);
  const auto plain = simulate_run(config, options);
  ASSERT_TRUE(plain);
  options.factors[{OperationKind::forward, UnitClass::block, false}] = 10;
  const auto slow = simulate_run(config, options);
  ASSERT_TRUE(slow);
  const Estimate& e = plain->estimate;
  const OperationCosts costs({e.training, e.job.options, options.cluster, 0});
  const double block = static_cast<double>(costs.of(Fact{OperationKind::forward, Unit{1}, {}, false}).count()) * 1e-9;
  EXPECT_NEAR(slow->step_seconds - plain->step_seconds, 4 * 9 * block, 0.3 * 4 * 9 * block);
}

/// A run that a simulation with other rates has made up: calibration must find those rates again.
TEST(Simulate, CalibrationFindsTheFactorsOfAMadeUpRunOnSharedCores) {
  SimulationOptions truth;
  truth.ranks = 2;
  truth.cluster = cluster_of("cpu").value();
  truth.cluster.device.letter_us = 100;
  truth.keep_all_spans = true;
  truth.steps = 8;
  truth.factors = {{{OperationKind::forward, UnitClass::block, false}, 1.7},
                   {{OperationKind::backward, UnitClass::block, false}, 0.6},
                   {{OperationKind::gather, UnitClass::block, true}, 3.0}};
  const auto run = simulate_run(small_job(), truth);
  ASSERT_TRUE(run) << run.error().message;
  RunProfile profile{.config = small_job(), .ranks = 2, .spans = run->outcome.spans, .step_seconds = run->step_seconds};
  const auto found = calibrate({profile}, cluster_of("cpu").value());
  ASSERT_TRUE(found) << found.error().message;
  const auto costs_with = [&](const DeviceModel& device, const OperationCosts::Factors& factors) {
    ClusterModel cluster = truth.cluster;
    cluster.device = device;
    const Estimate& e = run->estimate;
    OperationCosts costs({e.training, e.job.options, cluster, 0});
    costs.correct(factors);
    return costs;
  };
  const OperationCosts made = costs_with(truth.cluster.device, truth.factors), again_found = costs_with(found->device, found->factors);
  for (const OperationKind kind : {OperationKind::forward, OperationKind::backward, OperationKind::gather, OperationKind::optimize}) {
    const Fact block{kind, Unit{1}, {}, false};
    EXPECT_NEAR(seconds_of(again_found.of(block)) / seconds_of(made.of(block)), 1, 0.05) << OperationCosts::name_of(made.kind_of(block));
  }
  SimulationOptions again = truth;
  again.factors = found->factors;
  again.cluster.device = found->device;
  const auto repeated = simulate_run(small_job(), again);
  ASSERT_TRUE(repeated);
  EXPECT_NEAR(repeated->step_seconds, run->step_seconds, 0.01 * run->step_seconds);
}

TEST(PlanSearch, FindsPlansThatFitTheFastestFirstAndWritesOneThatLoads) {
  const auto search = search_plans(small_job("[training.guard]\nnonfinite = \"skip\"\n"), on_h200(4, 64));
  ASSERT_TRUE(search) << search.error().message;
  ASSERT_GE(search->best.size(), 2U);
  for (std::size_t i = 1; i < search->best.size(); ++i) EXPECT_LE(search->best[i - 1].step_seconds, search->best[i].step_seconds);
  const auto loaded = JobConfig::parse(short_toml(search->best.front().config), "planned");
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(loaded->hash(), search->best.front().config.hash());
  EXPECT_TRUE(loaded->notes.empty());
}

TEST(PlanSearch, SaysWhatTheSmallestTakesWhereNothingFits) {
  SimulationOptions options = on_h200(1, 64);
  options.cluster.device.memory_gib = 0.01;
  options.cluster.device.library_gib = 0;
  const auto search = search_plans(small_job(), options);
  ASSERT_TRUE(search) << search.error().message;
  EXPECT_TRUE(search->best.empty());
  EXPECT_NE(plan_search_text(*search).find("nothing fits: the smallest takes"), std::string::npos);
}

TEST(FaultForecast, AWalkThroughManyDeathsAgreesWithDalysFormula) {
  const RecoveryCosts costs{.step = 1, .snapshot = 0.5, .recovery = 20};
  for (const std::uint64_t interval : {10, 60, 300}) {
    const double walked = walked_efficiency(costs, interval, 3600, 100000, 7), formula = daly_efficiency(static_cast<double>(interval), 0.5, 20, 3600);
    EXPECT_NEAR(walked, formula, 0.005) << interval;
  }
}

TEST(FaultForecast, SimulatesADeathUnderEachPolicy) {
  SimulationOptions options = on_h200(2, 64);
  options.cluster.recovery = {.notice_seconds = 0.1, .start_seconds = 2, .build_seconds = 1, .disk_gbps = 1};
  const auto forecast = forecast_faults(small_job(), options, 3600, {10, 100});
  ASSERT_TRUE(forecast) << forecast.error().message;
  ASSERT_EQ(forecast->policies.size(), 3U);
  for (const auto& policy : forecast->policies) {
    EXPECT_GE(policy.costs.recovery, 3.1) << policy.name;
    EXPECT_LT(policy.costs.recovery, 4) << policy.name;
    for (const auto& row : policy.rows) {
      // Far below it where a disk takes longer to write the state than the steps between two snapshots: this job's steps are tiny.
      EXPECT_GT(row.simulated, 0.1 * forecast->undisturbed);
      EXPECT_LT(row.simulated, forecast->undisturbed);
      EXPECT_NEAR(row.simulated, row.daly, 0.03 * row.daly) << policy.name << ", every " << row.interval;
    }
  }
}

}  // namespace
}  // namespace troupe
