// What a profile is made into: work of operations, rates of a device, what cores share.
#include <gtest/gtest.h>

#include "tools/foresight/device_fit.hpp"
#include "tools/foresight/operation_work.hpp"
#include "tools/foresight/profile.hpp"

namespace troupe {
namespace {

using std::chrono::milliseconds;

JobConfig small_job(const std::string& model = "") {
  return JobConfig::parse("[model]\nflavor = \"debugmodel\"\nvocab_size = 2048\nn_layers = 4\n" + model +
                              "[training]\nlocal_batch_size = 2\nseq_len = 1024\n[checkpoint]\nenable = false\n",
                          "test")
      .value();
}

TracedSpan span(std::uint32_t rank, const char* lane, const char* name, int started, int ended) {
  return {Rank{rank}, lane, name, Step{5}, milliseconds{started}, milliseconds{ended}};
}

OperationCosts costs_of_two_ranks() {
  const ClusterModel cluster = cluster_of("cpu").value();
  const Estimate e = estimate_run(small_job(), 2, cluster).value();
  return OperationCosts({e.training, e.job.options, cluster, 0});
}

constexpr OperationCosts::Kind forward_block{OperationKind::forward, UnitClass::block, false};

TEST(Work, OfOperationsThatShareACoreIsWhatEachWouldHaveTakenAlone) {
  const std::vector spans{span(0, "compute", "forward L1", 0, 20), span(1, "compute", "forward L1", 0, 20)};
  const OperationCosts costs = costs_of_two_ranks();
  EXPECT_DOUBLE_EQ(work_by_kind(spans, costs, 1).at(forward_block), 0.010);
  EXPECT_DOUBLE_EQ(work_by_kind(spans, costs, 2).at(forward_block), 0.020);
  EXPECT_DOUBLE_EQ(work_by_kind(spans, costs, 0).at(forward_block), 0.020) << "each has hardware of its own";
}

TEST(Work, OfComputeAndOptimizerOnOneDeviceIsDividedAmongThem) {
  const std::vector spans{span(0, "compute", "forward L1", 0, 30), span(0, "optimizer", "optimize L2", 10, 30), span(0, "comm", "gather L2", 0, 30),
                          span(1, "optimizer", "optimize L2", 0, 10)};
  const OperationCosts costs = costs_of_two_ranks();
  const auto work = work_by_kind(spans, costs, 0);
  EXPECT_DOUBLE_EQ(work.at(forward_block), 0.020) << "alone for 10, then half of the device for 20";
  EXPECT_DOUBLE_EQ(work.at({OperationKind::optimize, UnitClass::block, false}), 0.010);
  EXPECT_DOUBLE_EQ(work.at({OperationKind::gather, UnitClass::block, true}), 0.030) << "copies run beside kernels";
}

TEST(Work, OfACollectiveBeginsWhenItsLastRankHasCome) {
  const std::vector spans{span(0, "comm", "gather L1", 0, 30), span(1, "comm", "gather L1", 10, 30), span(0, "compute", "forward L1", 0, 20)};
  const OperationCosts costs = costs_of_two_ranks();
  // From 10 to 20 three share two cores, from 20 to 30 two have one each; the forward is alone until 10.
  const auto work = work_by_kind(spans, costs, 2);
  EXPECT_NEAR(work.at({OperationKind::gather, UnitClass::block, true}), 0.010 * 2 / 3 + 0.010, 1e-9);
  EXPECT_NEAR(work.at(forward_block), 0.010 + 0.010 * 2 / 3, 1e-9);
}

TEST(Factor, IsWhatWasMeasuredAtASizeAndInBetweenBetweenTwo) {
  OperationCosts::Factor factor;
  factor.add(0.001, 2);
  factor.add(0.100, 4);
  EXPECT_DOUBLE_EQ(factor.at(0.001), 2);
  EXPECT_DOUBLE_EQ(factor.at(0.010), 3) << "ten times the one, a tenth of the other";
  EXPECT_DOUBLE_EQ(factor.at(0.0001), 2);
  EXPECT_DOUBLE_EQ(factor.at(1), 4);
  EXPECT_DOUBLE_EQ(OperationCosts::Factor{1.5}.at(0.3), 1.5);
}

TEST(DeviceFit, FindsTheEfficienciesThatWorkWasMeasuredWith) {
  const ClusterModel assumed = cluster_of("cpu").value();
  DeviceModel truth = assumed.device;
  truth.product_efficiency = 0.35;
  truth.attention_efficiency = 0.2;
  truth.memory_efficiency = 0.9;
  std::vector<MeasuredWork> measured;
  for (const char* size : {"dim = 128\n", "dim = 512\n"}) {
    const Estimate e = estimate_run(small_job(size), 1, assumed).value();
    for (std::size_t unit = 0; unit < e.training.units.size(); ++unit) {
      for (const bool backward : {false, true})
        measured.push_back({time_of(e.training, unit, backward, assumed.device), time_of(e.training, unit, backward, truth).total()});
    }
  }
  const DeviceModel found = fitted(assumed.device, measured);
  EXPECT_NEAR(found.product_efficiency, truth.product_efficiency, 0.05 * truth.product_efficiency);
  const Estimate between = estimate_run(small_job("dim = 256\n"), 1, assumed).value();
  for (const bool backward : {false, true}) {
    const double wanted = time_of(between.training, 1, backward, truth).total();
    EXPECT_NEAR(time_of(between.training, 1, backward, found).total(), wanted, 0.05 * wanted);
  }
}

RunProfile made_up(std::uint32_t ranks, const ClusterModel& cluster) {
  SimulationOptions options;
  options.ranks = ranks;
  options.cluster = cluster;
  options.keep_all_spans = true;
  const auto run = simulate_run(small_job(), options);
  return {.config = small_job(), .ranks = ranks, .spans = run->outcome.spans, .step_seconds = run->step_seconds};
}

TEST(Calibration, FindsWhatCoresShareFromRunsOfOneRankAndOfTwo) {
  const ClusterModel assumed = cluster_of("cpu").value();
  ClusterModel truth = assumed;
  truth.device.core_sharing = 0.7;
  truth.device.letter_us = 200;
  const auto found = calibrate({made_up(2, truth), made_up(1, truth)}, assumed);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_NEAR(found->device.core_sharing, 0.7, 0.03);
  SimulationOptions four;
  four.ranks = 4;
  four.cluster = truth;
  const auto wanted = simulate_run(small_job(), four);
  four.cluster.device = found->device;
  four.factors = found->factors;
  const auto predicted = simulate_run(small_job(), four);
  ASSERT_TRUE(wanted && predicted);
  EXPECT_NEAR(predicted->step_seconds, wanted->step_seconds, 0.05 * wanted->step_seconds) << "more ranks than were profiled";
}

}  // namespace
}  // namespace troupe
