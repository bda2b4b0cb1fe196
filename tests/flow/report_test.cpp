// The report of a timeline whose answers are known: probe p13's step under the virtual clock.
#include "src/trace/report.hpp"

#include <gtest/gtest.h>

#include "src/trace/ring_tracer.hpp"
#include "tests/flow/probe_step.hpp"

namespace troupe {
namespace {

TraceReport reported(const FlowKnobs& knobs) {
  std::vector<Rank> ranks;
  for (std::uint32_t rank = 0; rank < knobs.ranks; ++rank) ranks.emplace_back(rank);
  RingTracer tracer({.ranks = ranks});
  VirtualJob job(knobs);
  job.before_run = [&](VirtualJob& starting) { starting.runtime().tracer = &tracer; };
  EXPECT_EQ(job.run().findings, "");
  RunTimeline timeline;
  for (const Rank rank : ranks) timeline.ranks.push_back(tracer.snapshot(rank));
  auto report = report_of(timeline, std::pair{Step{3}, Step{3}}, {{"weights", knobs.slots.weights, 1000}, {"gradients", knobs.slots.gradients, 2000}});
  EXPECT_TRUE(report.ok());
  return std::move(report.value());
}

const TraceReport::Lane& lane(const TraceReport& report, std::string_view name) {
  for (const TraceReport::Lane& found : report.ranks.at(0).lanes) {
    if (found.lane == name) return found;
  }
  throw std::out_of_range("no such lane");
}

TEST(ReportOfAStep, KnowsTheBusySharesOfTheProbe) {
  EXPECT_NEAR(100 * lane(reported(probe_step(1)), "compute").share, 54.5, 0.1);
  EXPECT_NEAR(100 * lane(reported(probe_step(2)), "compute").share, 93.5, 0.1);
  FlowKnobs late = probe_step(2);
  late.prefetch_before_reduce = false;
  EXPECT_NEAR(100 * lane(reported(late), "compute").share, 64.3, 0.1);
}

TEST(ReportOfAStep, AccountsForAllOfItsTime) {
  for (const std::uint32_t slots : {1U, 2U, 3U}) {
    const TraceReport report = reported(probe_step(slots));
    for (const TraceReport::Lane& each : report.ranks.at(0).lanes) {
      Nanos sum = each.busy;
      for (const auto& [what, time] : each.waits) sum += time;
      EXPECT_EQ(sum, report.ranks[0].window) << each.lane << " with " << slots << " slots";
    }
    Nanos path = report.path_gaps;
    for (const auto& [kind, time] : report.path_kinds) path += time;
    EXPECT_EQ(path, report.path_length);
    EXPECT_EQ(report.path_length, report.ranks[0].window) << "the critical path leads back to the start of the step";
    EXPECT_EQ(report.path_gaps, Nanos{0}) << "in virtual time letters take none";
  }
}

TEST(ReportOfAStep, SaysThatSlotsWouldHelpWhereThereIsOneAndNotWhereThereAreTwo) {
  const TraceReport one = reported(probe_step(1));
  ASSERT_GE(one.advice.size(), 2U);
  for (const TraceReport::Advice& advice : {one.advice[0], one.advice[1]}) {
    EXPECT_EQ(advice.slot_bytes, advice.edge == "weights" ? 1000U : 2000U) << advice.edge;
    FlowKnobs more = probe_step(1);
    (advice.edge == "weights" ? more.slots.weights : more.slots.gradients) = 2;
    EXPECT_LT(reported(more).ranks[0].window, one.ranks[0].window - advice.waited / 3) << "a second slot of " << advice.edge << " does help";
  }
  const Nanos idle = one.ranks[0].window - lane(one, "compute").busy;
  EXPECT_GT(one.advice[0].waited + one.advice[1].waited, idle / 2) << "most of the idle time is for want of slots";
  const TraceReport two = reported(probe_step(2));
  for (const TraceReport::Advice& advice : two.advice) EXPECT_LT(advice.waited, two.ranks[0].window / 20) << advice.edge;
}

TEST(ReportOfAStep, OfRanksInLockstepSeesTheirCollectives) {
  FlowKnobs knobs = probe_step(2);
  knobs.ranks = 2;
  const TraceReport report = reported(knobs);
  ASSERT_EQ(report.ranks.size(), 2U);
  EXPECT_GT(report.ranks[0].collectives, 40U);
  EXPECT_NEAR(report.ranks[0].overlap, report.ranks[1].overlap, 0.01);
  EXPECT_GT(report.ranks[0].overlap, 0.8);
}

}  // namespace
}  // namespace troupe
