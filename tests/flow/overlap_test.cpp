#include <gtest/gtest.h>

#include <algorithm>

#include "tests/flow/probe_step.hpp"

namespace troupe {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

/// When the step's verdict stood, the last thing of it that takes time.
Nanos end_of_step(const VirtualJob& job, Step step) {
  Nanos end{0};
  for (const FlowSpan& span : job.spans()) {
    if (span.where.step == step && span.lane == LaneKind::comm) end = std::max(end, span.ended);
  }
  return end;
}

struct Steps {
  Nanos first, later;
};
/// Lengths of the first step, which waits for its batch, and of a later one, whose batch was loaded during the step before.
Steps run_steps(const FlowKnobs& knobs) {
  VirtualJob job(knobs);
  const FlowResult result = job.run();
  EXPECT_EQ(result.findings, "") << describe(knobs);
  EXPECT_EQ(result.compute_busy, 3 * milliseconds{144});
  return {end_of_step(job, Step{1}), end_of_step(job, Step{3}) - end_of_step(job, Step{2})};
}

/// Percent of a step that the compute lane is busy.
double busy(Nanos step) { return 100.0 * 144e6 / static_cast<double>(step.count()); }

TEST(Overlap, OneSlotEverywhereKeepsComputeBusyForHalfOfTheStep) {
  const Steps steps = run_steps(probe_step(1));
  EXPECT_NEAR(busy(steps.later), 54.5, 0.1);
  EXPECT_EQ(steps.first, microseconds{265500}) << "as the probe, which has one step";
}

TEST(Overlap, TwoSlotsKeepComputeBusyForNearlyAllOfTheStep) {
  const Steps steps = run_steps(probe_step(2));
  EXPECT_NEAR(busy(steps.later), 93.5, 0.1);
  EXPECT_EQ(steps.first, microseconds{155500});
}

TEST(Overlap, EachReduceBeforeTheNextGatherLosesAThirdOfTheStep) {
  FlowKnobs knobs = probe_step(2);
  knobs.prefetch_before_reduce = false;
  const Steps steps = run_steps(knobs);
  EXPECT_NEAR(busy(steps.later), 64.3, 0.1);
  EXPECT_EQ(steps.first, microseconds{225500});
}

TEST(Overlap, TheNumbersDoNotDependOnTheInterleaving) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    FlowKnobs knobs = probe_step(2);
    knobs.seed = seed;
    EXPECT_NEAR(busy(run_steps(knobs).later), 93.5, 0.1) << "seed " << seed;
  }
}

/// How many of the first step's gathers for a forward run, at least in part, while a forward runs; after the first, which nothing can hide.
struct Hidden {
  int gathers = 0, under_a_forward = 0;
};
Hidden count_hidden_gathers(std::uint32_t slots) {
  FlowKnobs knobs = probe_step(2);
  knobs.slots.weights = slots;
  knobs.micro_batches = 1;
  VirtualJob job(knobs);
  EXPECT_EQ(job.run().findings, "");
  Hidden hidden;
  for (const FlowSpan& gather : job.spans()) {
    if (gather.lane != LaneKind::comm || gather.name.rfind("gather", 0) != 0) continue;
    ++hidden.gathers;
    hidden.under_a_forward += std::any_of(job.spans().begin(), job.spans().end(), [&](const FlowSpan& pass) {
      return pass.lane == LaneKind::compute && pass.name.rfind("forward", 0) == 0 && pass.started < gather.ended && gather.started < pass.ended;
    });
    if (hidden.gathers == static_cast<int>(knobs.layers)) break;
  }
  return hidden;
}

TEST(Overlap, WithOneSlotOfWeightsNoGatherRunsUnderAForward) {
  const Hidden hidden = count_hidden_gathers(1);
  EXPECT_EQ(hidden.gathers, 8);
  EXPECT_EQ(hidden.under_a_forward, 0);
}

TEST(Overlap, WithTwoSlotsOfWeightsNearlyEveryGatherRunsUnderAForward) {
  const Hidden hidden = count_hidden_gathers(2);
  EXPECT_EQ(hidden.gathers, 8);
  EXPECT_GE(hidden.under_a_forward, 6) << "all but the first two, which no forward could hide";
}

/// What a delay of one forward's time, put on the gather of one layer's forward, adds to the step, as a share of itself.
double share_of_a_late_gather(std::uint32_t slots) {
  FlowKnobs knobs = probe_step(2);
  knobs.slots.weights = slots;
  knobs.gather = milliseconds{1};  // well under a forward, as with large layers; else the comm lane has no time to catch up
  const auto run = [&](Nanos delay) {
    VirtualJob job(knobs);
    job.alter_lane = [delay](VirtualJob&, std::uint32_t, LaneKind lane, LaneModel& model) {
      if (lane != LaneKind::comm) return;
      model.fault = [delay](const LaneOperation& operation) {
        const bool struck = operation.name == "gather L4" && operation.where.step == Step{2} && operation.where.micro == Micro{0};
        return struck ? LaneFault{LaneFault::Kind::stall, delay, {}} : LaneFault{};
      };
    };
    EXPECT_EQ(job.run().findings, "");
    return end_of_step(job, Step{2}) - end_of_step(job, Step{1});
  };
  return static_cast<double>((run(milliseconds{3}) - run(Nanos{0})).count()) / 3e6;
}

TEST(Overlap, ALateGatherCostsItsDelayWithOneSlotAndNextToNothingWithThree) {
  EXPECT_GT(share_of_a_late_gather(1), 0.9);
  EXPECT_LT(share_of_a_late_gather(3), 0.2);
}

/// What a slow file, four fifths of a micro-batch's time on the load of one, adds to the step, as a share of itself.
double share_of_a_slow_file(std::uint32_t slots) {
  FlowKnobs knobs = probe_step(2);
  knobs.slots.batches = slots;
  const auto run = [&](Nanos delay) {
    VirtualJob job(knobs);
    job.alter_lane = [delay](VirtualJob&, std::uint32_t, LaneKind lane, LaneModel& model) {
      if (lane != LaneKind::disk) return;
      model.fault = [delay](const LaneOperation& operation) {
        const bool struck = operation.where.step == Step{2} && operation.where.micro == Micro{1};
        return struck ? LaneFault{LaneFault::Kind::stall, delay, {}} : LaneFault{};
      };
    };
    EXPECT_EQ(job.run().findings, "");
    return end_of_step(job, Step{2}) - end_of_step(job, Step{1});
  };
  return static_cast<double>((run(milliseconds{60}) - run(Nanos{0})).count()) / 60e6;
}

TEST(Overlap, ASlowFileIsHiddenByReadingAheadAndCostsItsDelayWithOneSlotOfBatches) {
  EXPECT_GT(share_of_a_slow_file(1), 0.9);
  EXPECT_LT(share_of_a_slow_file(2), 0.05);
}

}  // namespace
}  // namespace troupe
