#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

#include "src/runtime/send.hpp"
#include "tests/support/virtual_world_job.hpp"

namespace troupe {
namespace {

/// The knobs of a seed for one, two or four ranks.
FlowKnobs knobs_of(std::uint64_t seed) { return draw_knobs(seed, std::uint32_t{1} << (seed % 3)); }

struct Size {
  std::uint64_t operations, rounds;  ///< but for the storage lane's
  Nanos elapsed;
};
/// How much there is to strike at, from a run without a fault.
Size size_of(const FlowKnobs& knobs) {
  VirtualJob job(knobs);
  const FlowResult result = job.run();
  EXPECT_EQ(result.findings, "") << describe(knobs);
  const auto operations = std::count_if(job.spans().begin(), job.spans().end(), [](const FlowSpan& span) { return span.lane != LaneKind::storage; });
  return {static_cast<std::uint64_t>(operations), job.group().rounds(), result.elapsed};
}

/// The run ended in bounded time, with this cause, lanes drained, slots home, and nothing else to find.
void expect_clean_stop(const FlowKnobs& knobs, const VirtualJob& job, const FlowResult& result, const std::string& cause) {
  EXPECT_EQ(result.end.how, RunEnd::How::finished) << describe(knobs) << "\n" << result.end.report;
  EXPECT_NE(result.fault.find(cause), std::string::npos) << describe(knobs) << "\n" << result.fault;
  EXPECT_EQ(result.findings, "") << describe(knobs);
  EXPECT_EQ(job.open_operations(), 0) << describe(knobs);
}

constexpr std::uint64_t seeds = 200;

/// Any operation of any rank and lane but the storage's, whose failures are no faults.
void fail_operation(VirtualJob& job, std::uint64_t victim, LaneFault fault) {
  const auto counter = std::make_shared<std::uint64_t>(0);
  job.alter_lane = [counter, victim, fault](VirtualJob&, std::uint32_t, LaneKind lane, LaneModel& model) {
    if (lane == LaneKind::storage) return;
    model.fault = [counter, victim, fault](const LaneOperation&) { return (*counter)++ == victim ? fault : LaneFault{}; };
  };
}

TEST(Faults, AFailedOperationEndsInAReportAndDrainedLanesWithAllSlotsHome) {
  for (std::uint64_t seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
    const FlowKnobs knobs = knobs_of(seed);
    const std::uint64_t victim = seed * 7919 % size_of(knobs).operations;
    const FlowResult result = run_twice(knobs, [&](VirtualJob& job) { fail_operation(job, victim, {LaneFault::Kind::fail, {}, "bit flip"}); });
    VirtualJob job(knobs);
    fail_operation(job, victim, {LaneFault::Kind::fail, {}, "bit flip"});
    expect_clean_stop(knobs, job, job.run(), "bit flip");
    EXPECT_EQ(result.findings, "") << describe(knobs);
  }
}

TEST(Faults, AnAbortedCollectiveEndsInAReportAndDrainedLanesWithAllSlotsHome) {
  for (std::uint64_t seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
    const FlowKnobs knobs = knobs_of(seed);
    const std::uint64_t victim = seed * 7919 % size_of(knobs).rounds;
    VirtualJob job(knobs);
    job.before_run = [victim](VirtualJob& of) {
      of.group().on_round([victim](std::uint64_t round) {
        if (round == victim) throw CollectiveError("link is down");
      });
    };
    expect_clean_stop(knobs, job, job.run(), "link is down");
  }
}

TEST(Faults, AnEpochThatIsEndedAtAnyMomentDrainsWithAllSlotsHome) {
  std::uint64_t struck = 0;
  for (std::uint64_t seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
    const FlowKnobs knobs = knobs_of(seed);
    const Nanos moment{static_cast<Nanos::rep>(seed * 7919 % 1000) * size_of(knobs).elapsed.count() / 1000};
    VirtualJob job(knobs);
    job.before_run = [moment](VirtualJob& of) { of.world().clock().at(moment, [&of] { of.fault(0, "rank 9 died"); }); };
    const FlowResult result = job.run();
    if (result.fault.empty()) continue;  // with other draws it was over before
    ++struck;
    expect_clean_stop(knobs, job, result, "rank 9 died");
  }
  EXPECT_GE(struck, seeds * 9 / 10);
}

TEST(Faults, AStalledOperationDelaysAndChangesNothing) {
  for (std::uint64_t seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
    const FlowKnobs knobs = knobs_of(seed);
    const Size size = size_of(knobs);
    VirtualJob job(knobs);
    fail_operation(job, seed * 7919 % size.operations, {LaneFault::Kind::stall, std::chrono::seconds{5}, {}});
    const FlowResult result = job.run();
    EXPECT_EQ(result.findings, "") << describe(knobs);
    EXPECT_EQ(result.fault, "");
    EXPECT_EQ(result.reported, Step{knobs.steps});
    EXPECT_GE(result.elapsed, std::chrono::seconds{5});
  }
}

TEST(Faults, ASaveThatFailsIsNoFaultAndTheRunGoesOn) {
  for (std::uint64_t seed = 1; seed <= seeds / 4 && !::testing::Test::HasFailure(); ++seed) {
    FlowKnobs knobs = knobs_of(seed);
    knobs.snapshot_every = 1;
    VirtualJob job(knobs);
    job.alter_lane = [](VirtualJob&, std::uint32_t, LaneKind lane, LaneModel& model) {
      if (lane == LaneKind::storage) model.fault = [](const LaneOperation&) { return LaneFault{LaneFault::Kind::fail, {}, "disk is full"}; };
    };
    const FlowResult result = job.run();
    EXPECT_EQ(result.findings, "") << describe(knobs);
    EXPECT_EQ(result.fault, "");
    EXPECT_EQ(result.reported, Step{knobs.steps});
  }
}

}  // namespace
}  // namespace troupe
