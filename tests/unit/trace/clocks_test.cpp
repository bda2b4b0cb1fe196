#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "src/trace/chrome_trace.hpp"
#include "src/trace/ring_tracer.hpp"
#include "tests/support/temporary_folder.hpp"

namespace troupe {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

const Where somewhere{EpochId{1}, Step{1}, {}, {}};

/// Two processes whose clocks differ as told. Letters go both ways, each on its way for 40 µs and more.
struct TwoHosts {
  Nanos offset{0};
  double drift = 0;
  Nanos length{seconds{2}};
  RingTracer launcher{{.ranks = {launcher_clock}}}, rank{{.ranks = {Rank{3}}}};

  [[nodiscard]] Nanos by_rank(Nanos time) const { return time + offset + Nanos{std::llround(drift * static_cast<double>((time - length / 2).count()))}; }

  std::vector<RankTrace> record(bool both_ways = true) {
    std::mt19937 dice(5);
    for (Nanos at = seconds{1}; at < seconds{1} + length; at += milliseconds{5}) {
      const Nanos way = microseconds{40 + dice() % 300};
      std::uint64_t flow = launcher.next_flow();
      launcher.letter_sent(launcher_clock, "coordinator actor", "Horizon", flow, somewhere, at);
      rank.letter_received(Rank{3}, "supervisor actor", "Horizon", flow, somewhere, by_rank(at + way));
      rank.span({.rank = Rank{3},
                 .track = "supervisor actor",
                 .name = "Horizon",
                 .where = somewhere,
                 .issued = at,
                 .started = by_rank(at + way),
                 .ended = by_rank(at + way) + Nanos{500}});
      if (!both_ways) continue;
      flow = rank.next_flow();
      rank.letter_sent(Rank{3}, "supervisor actor", "StepReport", flow, somewhere, by_rank(at + milliseconds{2}));
      launcher.letter_received(launcher_clock, "coordinator actor", "StepReport", flow, somewhere, at + milliseconds{2} + microseconds{40 + dice() % 300});
    }
    return {rank.snapshot(Rank{3}), launcher.snapshot(launcher_clock)};
  }
};

TEST(Clocks, OfTwoHostsAreFoundToDifferByWhatTheyDo) {
  TwoHosts hosts{.offset = seconds{7200} + microseconds{123}};
  auto traces = hosts.record();
  auto clocks = estimate_clocks(traces);
  ASSERT_EQ(clocks.size(), 2U);
  EXPECT_TRUE(clocks[0].known);
  EXPECT_LE(clocks[0].error, microseconds{60});
  EXPECT_LE(std::chrono::abs(clocks[0].offset - hosts.offset), clocks[0].error);
  EXPECT_EQ(clocks[0].drift, 0);
  align_clocks(traces, clocks);
  EXPECT_TRUE(clocks[0].applied);
  for (const TraceEvent& event : traces[0].events) {
    EXPECT_LT(event.started, seconds{4});
    if (event.kind == TraceEvent::Kind::span) {
      EXPECT_LT(event.started - event.issued, milliseconds{1}) << "a handler's letter left by the other clock";
    }
  }
}

TEST(Clocks, ThatDriftAreFollowed) {
  TwoHosts hosts{.offset = milliseconds{-30}, .drift = 50e-6, .length = seconds{40}};
  auto traces = hosts.record();
  auto clocks = estimate_clocks(traces);
  EXPECT_NEAR(clocks[0].drift, 50e-6, 5e-6);
  align_clocks(traces, clocks);
  std::map<std::uint64_t, Nanos> sent;
  for (const TraceEvent& event : traces[1].events)
    if (event.kind == TraceEvent::Kind::letter_sent) sent[event.value] = event.started;
  std::size_t letters = 0;
  for (const TraceEvent& event : traces[0].events) {
    if (event.kind != TraceEvent::Kind::letter_received) continue;
    ++letters;
    const Nanos way = event.started - sent.at(event.value);
    EXPECT_GT(way, Nanos{0} - microseconds{20});
    EXPECT_LT(way, microseconds{400});
  }
  EXPECT_EQ(letters, 8000U);
}

TEST(Clocks, OfOneHostStayAsTheyAre) {
  TwoHosts hosts{};
  auto traces = hosts.record();
  const Nanos before = traces[0].events.front().started;
  auto clocks = estimate_clocks(traces);
  align_clocks(traces, clocks);
  EXPECT_FALSE(clocks[0].applied);
  EXPECT_EQ(traces[0].events.front().started, before);
  EXPECT_THAT(describe(clocks), HasSubstr("left as it is"));
}

TEST(Clocks, ThatNoLettersJoinAreSaidToBeUnknown) {
  TwoHosts hosts{.offset = seconds{5}};
  auto clocks = estimate_clocks(hosts.record(false));
  EXPECT_FALSE(clocks[0].known);
  EXPECT_THAT(describe(clocks), HasSubstr("rank 3: its clock is taken as it is"));
}

TEST(Timelines, ReadBackAreWhatWasWritten) {
  TemporaryFolder folder;
  RingTracer tracer({.ranks = {Rank{0}, Rank{1}}});
  tracer.span({.rank = Rank{1},
               .track = "comm",
               .name = "gather \"L3\"",
               .where = {EpochId{2}, Step{7}, Micro{1}, Unit{3}},
               .issued = Nanos{5'000'000'123},
               .started = Nanos{5'000'000'456},
               .ended = Nanos{5'000'009'999},
               .outcome = "failed"});
  const std::uint64_t flow = tracer.next_flow();
  tracer.letter_sent(Rank{0}, "sharding actor", "WeightsGathered", flow, {EpochId{2}, Step{7}, Micro{1}, Unit{3}}, Nanos{5'000'010'000});
  tracer.letter_received(Rank{1}, "compute actor", "WeightsGathered", flow, {EpochId{2}, Step{7}, Micro{1}, Unit{3}}, Nanos{5'000'020'000});
  tracer.slots_in_use(Rank{1}, "weights", 2, Nanos{5'000'000'500});
  tracer.mark(Rank{0}, "fault: rank 1 died", Nanos{5'000'030'000});
  ASSERT_TRUE(tracer.write(folder.path() / "rank-0.json").ok());
  const auto read = read_chrome_trace(folder.path() / "rank-0.json");
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ(read->size(), 2U);
  for (const RankTrace& got : *read) {
    const RankTrace want = tracer.snapshot(got.rank);
    ASSERT_EQ(got.events.size(), want.events.size());
    for (const TraceEvent& event : want.events) {
      const auto same = std::find_if(got.events.begin(), got.events.end(), [&](const TraceEvent& other) {
        return other.kind == event.kind && got.names[other.name] == want.names[event.name] && other.started == event.started && other.value == event.value &&
               (event.kind == TraceEvent::Kind::slots || event.kind == TraceEvent::Kind::mark ||
                (got.names[other.track] == want.names[event.track] && other.where == event.where)) &&
               (event.kind != TraceEvent::Kind::span ||
                (other.issued == event.issued && other.ended == event.ended && got.names[other.outcome] == want.names[event.outcome]));
      });
      EXPECT_NE(same, got.events.end()) << want.names[event.name];
    }
  }
}

TEST(Timelines, OfTwoFilesWithOneRankAreRefused) {
  TemporaryFolder folder;
  RingTracer tracer({});
  tracer.mark(Rank{0}, "epoch", Nanos{10});
  ASSERT_TRUE(tracer.write(folder.path() / "a.json").ok());
  ASSERT_TRUE(tracer.write(folder.path() / "b.json").ok());
  const auto joined = read_run_timeline(std::vector{folder.path() / "a.json", folder.path() / "b.json"});
  ASSERT_FALSE(joined.ok());
  EXPECT_THAT(joined.error().message, HasSubstr("rank 0 is in two of the files"));
}

TEST(Timelines, OfStepsThatAreNotThereSayWhy) {
  TemporaryFolder folder;
  RingTracer tracer({});
  tracer.span({.rank = Rank{0}, .track = "compute", .name = "forward L0", .where = somewhere, .issued = Nanos{1}, .started = Nanos{2}, .ended = Nanos{3}});
  ASSERT_TRUE(tracer.write(folder.path() / "rank-0.json").ok());
  const std::vector files{folder.path() / "rank-0.json"};
  EXPECT_TRUE(read_run_timeline(files, std::pair{Step{1}, Step{1}}).ok());
  const auto none = read_run_timeline(files, std::pair{Step{8}, Step{9}});
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.error().message, HasSubstr("nothing of steps 8 to 9"));
}

}  // namespace
}  // namespace troupe
