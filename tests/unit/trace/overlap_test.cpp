#include "src/trace/overlap.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace troupe {
namespace {

TracedSpan span(const char* track, const char* name, std::int64_t start, std::int64_t end, std::uint32_t rank = 0, std::uint64_t step = 1) {
  return {Rank{rank}, track, name, Step{step}, Nanos{start}, Nanos{end}};
}

TEST(TraceOverlap, OfNothingIsZero) {
  const TraceOverlap overlap = trace_overlap({});
  EXPECT_EQ(overlap.gathers_under_forwards, 0.0);
  EXPECT_EQ(overlap.compute_busy, 0.0);
  EXPECT_EQ(overlap.gathers, 0U);
}

TEST(TraceOverlap, SharesTheTimeOfGathersUnderForwards) {
  const std::vector spans{span("comm", "gather L0", 0, 10), span("compute", "forward L0", 10, 30), span("comm", "gather L1", 10, 20),
                          span("comm", "gather L2", 25, 35)};
  const TraceOverlap overlap = trace_overlap(spans);
  EXPECT_DOUBLE_EQ(overlap.gathers_under_forwards, 15.0 / 30.0);
  EXPECT_DOUBLE_EQ(overlap.gather_count_under_forwards, 2.0 / 3.0);
  EXPECT_EQ(overlap.gathers, 3U);
  EXPECT_EQ(overlap.forwards, 1U);
}

TEST(TraceOverlap, DoesNotCountWhatRunsOnAnotherRank) {
  const std::vector spans{span("comm", "gather L0", 0, 10, 0), span("compute", "forward L0", 0, 10, 1)};
  EXPECT_EQ(trace_overlap(spans).gathers_under_forwards, 0.0);
}

TEST(TraceOverlap, SharesTheTimeOfReducesUnderBackwards) {
  const std::vector spans{span("compute", "backward L1", 0, 10), span("compute", "forward L1", 10, 20), span("comm", "reduce L1", 5, 15)};
  EXPECT_DOUBLE_EQ(trace_overlap(spans).reduces_under_backwards, 0.5);
}

TEST(TraceOverlap, SharesTheTimeThatComputeIsBusyOverAllRanks) {
  const std::vector spans{span("compute", "forward L0", 0, 10), span("compute", "backward L0", 20, 40), span("compute", "forward L0", 100, 140, 1),
                          span("compute", "loss", 140, 160, 1)};
  EXPECT_DOUBLE_EQ(trace_overlap(spans).compute_busy, 90.0 / 100.0);
}

TEST(TraceOverlap, LooksAtTheStepsAskedFor) {
  const std::vector spans{span("comm", "gather L0", 0, 10, 0, 1), span("compute", "forward L0", 0, 10, 0, 1), span("comm", "gather L0", 20, 30, 0, 2)};
  EXPECT_DOUBLE_EQ(trace_overlap(spans, Step{1}, Step{1}).gathers_under_forwards, 1.0);
  EXPECT_DOUBLE_EQ(trace_overlap(spans, Step{2}, Step{2}).gathers_under_forwards, 0.0);
}

}  // namespace
}  // namespace troupe
