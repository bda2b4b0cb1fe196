#include "src/trace/ring_tracer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "src/trace/chrome_trace.hpp"
#include "src/trace/settings.hpp"
#include "tests/unit/trace/trace_rules.hpp"

namespace troupe {
namespace {

using nlohmann::json;
using testing::broken_rules;
using ::testing::ElementsAre;
using testing::events_of;
using ::testing::IsEmpty;

const Where where{EpochId{1}, Step{7}, Micro{0}, Unit{3}};

json written(const RingTracer& tracer, std::initializer_list<Rank> ranks = {Rank{0}}) {
  std::vector<RankTrace> traces;
  for (const Rank rank : ranks) traces.push_back(tracer.snapshot(rank));
  std::ostringstream out;
  write_chrome_trace(traces, out);
  return json::parse(out.str());
}

Tracer::Span span(std::string name, std::int64_t issued, std::int64_t started, std::int64_t ended, std::string_view track = "compute", Rank rank = Rank{0}) {
  return {.rank = rank, .track = track, .name = std::move(name), .where = where, .issued = Nanos{issued}, .started = Nanos{started}, .ended = Nanos{ended}};
}

TEST(RingTracer, WritesASpanWithItsPlaceItsOutcomeAndItsWait) {
  RingTracer tracer({});
  tracer.span(span("forward L3", 1'000'000, 1'002'500, 1'010'001));
  const json trace = written(tracer);
  EXPECT_THAT(broken_rules(trace), IsEmpty());
  const auto spans = events_of(trace, "X");
  ASSERT_EQ(spans.size(), 1U);
  EXPECT_EQ(spans[0]["name"], "forward L3");
  EXPECT_DOUBLE_EQ(spans[0]["ts"], 2.5);
  EXPECT_DOUBLE_EQ(spans[0]["dur"], 7.501);
  EXPECT_EQ(spans[0]["args"]["step"], 7);
  EXPECT_EQ(spans[0]["args"]["unit"], 3);
  EXPECT_EQ(spans[0]["args"]["outcome"], "ok");
  EXPECT_DOUBLE_EQ(spans[0]["args"]["issued"], 0.0);
  EXPECT_DOUBLE_EQ(spans[0]["args"]["queued"], 2.5);
  const auto begins = events_of(trace, "b"), ends = events_of(trace, "e");
  ASSERT_EQ(begins.size(), 1U);
  EXPECT_EQ(begins[0]["name"], "compute queue");
  EXPECT_EQ(begins[0]["args"]["operation"], "forward L3");
  EXPECT_DOUBLE_EQ(begins[0]["ts"], 0.0);
  EXPECT_DOUBLE_EQ(ends[0]["ts"], 2.5);
}

TEST(RingTracer, GivesEachTrackARowAndEachRankAProcess) {
  RingTracer tracer({.ranks = {Rank{0}, Rank{1}}});
  tracer.span(span("forward L0", 0, 10, 20));
  tracer.span(span("gather L1", 0, 10, 20, "comm"));
  tracer.span(span("forward L0", 0, 10, 20, "compute", Rank{1}));
  const json trace = written(tracer, {Rank{0}, Rank{1}});
  EXPECT_THAT(broken_rules(trace), IsEmpty());
  std::vector<std::string> names;
  for (const auto& event : events_of(trace, "M")) {
    if (event["name"] == "process_name" || event["name"] == "thread_name") names.push_back(event["args"]["name"]);
  }
  EXPECT_THAT(names, ElementsAre("rank 0", "marks", "compute", "comm", "rank 1", "marks", "compute"));
}

TEST(RingTracer, PutsSpansThatOverlapIntoFurtherRows) {
  RingTracer tracer({});
  tracer.span(span("outer", 0, 100, 200));
  tracer.span(span("inner", 0, 120, 200));
  tracer.span(span("crossing", 0, 150, 250));
  tracer.span(span("next", 0, 250, 300));
  tracer.span(span("same start, longer", 0, 100, 400));
  const json trace = written(tracer);
  EXPECT_THAT(broken_rules(trace), IsEmpty());
  EXPECT_EQ(events_of(trace, "X").size(), 5U);
}

TEST(RingTracer, DrawsLettersAsArrowsThatStartAndEndInSpans) {
  RingTracer tracer({.ranks = {Rank{0}, Rank{1}}});
  const std::uint64_t flow = tracer.next_flow();
  tracer.span(span("WeightsGathered", 0, 50, 150, "sharding"));
  tracer.letter_sent(Rank{0}, "sharding", "WeightsGathered", flow, where, Nanos{100});
  tracer.letter_received(Rank{1}, "compute actor", "WeightsGathered", flow, where, Nanos{900});
  const json trace = written(tracer, {Rank{0}, Rank{1}});
  EXPECT_THAT(broken_rules(trace), IsEmpty());
  const auto starts = events_of(trace, "s"), ends = events_of(trace, "f");
  ASSERT_EQ(starts.size(), 1U);
  ASSERT_EQ(ends.size(), 1U);
  EXPECT_EQ(starts[0]["id"], ends[0]["id"]);
  EXPECT_EQ(starts[0]["name"], ends[0]["name"]);
  EXPECT_EQ(ends[0]["bp"], "e");
  for (const auto& arrow : {starts[0], ends[0]}) {
    bool inside = false;
    for (const auto& one : events_of(trace, "X"))
      inside = inside || (one["pid"] == arrow["pid"] && one["tid"] == arrow["tid"] && one["ts"] <= arrow["ts"] &&
                          arrow["ts"] <= one["ts"].get<double>() + one["dur"].get<double>());
    EXPECT_TRUE(inside) << arrow.dump();
  }
}

TEST(RingTracer, CountsSlotsAndMarksFaults) {
  RingTracer tracer({});
  tracer.slots_in_use(Rank{0}, "weights", 2, Nanos{100});
  tracer.mark(Rank{0}, "fault: rank 1 \"died\"\n\\ of old age \xc3\xa9 \xff", Nanos{200});
  const json trace = written(tracer);
  EXPECT_THAT(broken_rules(trace), IsEmpty());
  EXPECT_EQ(events_of(trace, "C").at(0)["name"], "slots weights");
  EXPECT_EQ(events_of(trace, "C").at(0)["args"]["in use"], 2);
  EXPECT_EQ(events_of(trace, "i").at(0)["name"], "fault: rank 1 \"died\"\n\\ of old age \xc3\xa9 \xef\xbf\xbd");
}

TEST(RingTracer, KeepsTheNewestEventsAndSaysHowManyWentBefore) {
  RingTracer tracer({.events = 10});
  for (std::int64_t i = 0; i < 25; ++i) tracer.span(span("op " + std::to_string(i), 0, 100 * i, 100 * i + 50));
  const RankTrace trace = tracer.snapshot(Rank{0});
  ASSERT_EQ(trace.events.size(), 10U);
  EXPECT_EQ(trace.overwritten, 15U);
  EXPECT_EQ(trace.names[trace.events.front().name], "op 15");
  EXPECT_EQ(trace.names[trace.events.back().name], "op 24");
  EXPECT_EQ(written(tracer)["otherData"]["overwritten_events"], "15");
}

TEST(RingTracer, KeepsTheStepsThatWereAskedForAlone) {
  const TraceSettings settings{.enable = true, .steps = {3, 4}};
  RingTracer tracer({.steps = settings.window()});
  for (std::uint64_t step = 0; step <= 6; ++step) {
    const Where there{EpochId{1}, Step{step}, {}, {}};
    const auto text = std::to_string(step);
    tracer.span({.rank = Rank{0}, .track = "compute", .name = "span " + text, .where = there, .ended = Nanos{1}});
    tracer.slots_in_use(Rank{0}, "weights", static_cast<std::uint32_t>(step), Nanos{2});
    tracer.letter_sent(Rank{0}, "compute", "Letter", step, there, Nanos{3});
    tracer.letter_received(Rank{0}, "sharding", "Letter", step, there, Nanos{4});
    LaneOperation gather;
    gather.name = "gather " + text;
    gather.where = there;
    tracer.lanes_of(Rank{0}).finished(LaneKind::comm, gather, Nanos{4}, Nanos{4}, Nanos{5}, {});
  }
  tracer.mark(Rank{0}, "fault", Nanos{6});
  const RankTrace trace = tracer.snapshot(Rank{0});
  ASSERT_EQ(trace.events.size(), 2 * 5U + 1);
  for (const TraceEvent& event : trace.events) {
    if (event.kind == TraceEvent::Kind::mark) continue;
    const std::uint64_t step = event.kind == TraceEvent::Kind::slots ? event.value : event.where.step.value();
    EXPECT_TRUE(step == 3 || step == 4) << trace.names[event.name] << ' ' << step;
  }
  EXPECT_EQ(trace.events.back().kind, TraceEvent::Kind::mark);
  EXPECT_EQ(trace.overwritten, 0U);
}

TEST(RingTracer, ReportsItsLanesUnderTheirRank) {
  RingTracer tracer({.ranks = {Rank{0}, Rank{3}}});
  const auto clock = make_system_clock();
  const auto lane = make_thread_lane(LaneKind::comm, Rank{3}, *clock, &tracer.lanes_of(Rank{3}));
  LaneOperation operation;
  operation.name = "gather L1";
  operation.where = where;
  operation.work = [](Stream&) { throw std::runtime_error("aborted"); };
  lane->post(std::move(operation));
  ASSERT_TRUE(lane->drain(std::chrono::minutes(1)));
  EXPECT_THAT(tracer.snapshot(Rank{0}).events, IsEmpty());
  const RankTrace trace = tracer.snapshot(Rank{3});
  ASSERT_EQ(trace.events.size(), 1U);
  EXPECT_EQ(trace.names[trace.events[0].track], "comm");
  EXPECT_EQ(trace.names[trace.events[0].name], "gather L1");
  EXPECT_EQ(trace.names[trace.events[0].outcome], "failed");
  EXPECT_LE(trace.events[0].issued, trace.events[0].started);
}

TEST(RingTracer, TakesEventsFromManyThreadsAndWritesMeanwhile) {
  RingTracer tracer({.events = 1000});
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&tracer, t] {
        for (std::int64_t i = 0; i < 2000; ++i) tracer.span(span("op " + std::to_string(t), i * 10, i * 10, i * 10 + 5));
      });
    }
    for (int i = 0; i < 5; ++i) EXPECT_LE(tracer.snapshot(Rank{0}).events.size(), 1000U);
  }
  EXPECT_EQ(tracer.snapshot(Rank{0}).overwritten, 7000U);
  EXPECT_THAT(broken_rules(written(tracer)), IsEmpty());
}

TEST(RingTracer, GivesFlowsIdsThatDifferBetweenProcessesAndFitADouble) {
  RingTracer first({.ranks = {Rank{0}}}), last({.ranks = {Rank{100'000}}});
  EXPECT_NE(first.next_flow(), first.next_flow());
  EXPECT_NE(first.next_flow(), last.next_flow());
  EXPECT_LT(last.next_flow(), std::uint64_t{1} << 53);
}

TEST(RingTracer, GivesAProcessThatIsStartedAgainOtherFlowsThanTheOneBeforeIt) {
  std::set<std::uint64_t> seen;
  for (const std::uint32_t incarnation : {1U, 2U, 3U, 255U}) {
    for (const Rank rank : {Rank{0}, Rank{1}, Rank{(1U << 17U) - 1}}) {
      RingTracer tracer({.ranks = {rank}, .events = 1, .incarnation = Incarnation{incarnation}});
      for (int letter = 0; letter < 3; ++letter) {
        const std::uint64_t flow = tracer.next_flow();
        EXPECT_TRUE(seen.insert(flow).second) << "rank " << rank.value() << ", process " << incarnation;
        EXPECT_LT(flow, std::uint64_t{1} << 53);
      }
    }
  }
}

TEST(RingTracer, IgnoresRanksOfOtherProcesses) {
  RingTracer tracer({.ranks = {Rank{1}}});
  tracer.span(span("stray", 0, 1, 2));
  EXPECT_THAT(tracer.snapshot(Rank{1}).events, IsEmpty());
  EXPECT_THROW((void)tracer.snapshot(Rank{0}), std::out_of_range);
}

TEST(RingTracer, KeepsTimesSmallAndExactAfterALongUptime) {
  RingTracer tracer({});
  const std::int64_t uptime = 90LL * 24 * 3600 * 1'000'000'000;
  tracer.span(span("first", 0, uptime, uptime + 1));
  tracer.span(span("last", 0, uptime + 3'600'000'000'123, uptime + 3'600'000'000'124));
  const json trace = written(tracer);
  EXPECT_THAT(broken_rules(trace), IsEmpty());
  EXPECT_DOUBLE_EQ(events_of(trace, "X").at(1)["ts"], 3'600'000'000.123);
  EXPECT_DOUBLE_EQ(events_of(trace, "X").at(1)["dur"], 0.001);
}

TEST(RingTracer, AnEmptyTraceIsStillATrace) { EXPECT_THAT(broken_rules(written(RingTracer({}))), IsEmpty()); }

TEST(RingTracer, SaysWhereItCouldNotWrite) {
  const auto result = RingTracer({}).write("/nonexistent folder/trace.json");
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(result.error().message, ::testing::HasSubstr("/nonexistent folder/trace.json"));
}

}  // namespace
}  // namespace troupe
