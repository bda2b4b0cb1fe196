#include "src/trace/report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "src/trace/ring_tracer.hpp"

namespace troupe {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

/// A timeline written by hand, in milliseconds.
class HandMade {
 public:
  explicit HandMade(std::vector<Rank> ranks) : ranks_(std::move(ranks)), tracer_({.ranks = ranks_}) {}
  void op(std::uint32_t rank, const char* lane, const char* name, std::uint32_t unit, int issued, int started, int ended, std::uint64_t step = 1) {
    tracer_.span({.rank = Rank{rank},
                  .track = lane,
                  .name = name,
                  .where = at(unit, step),
                  .issued = milliseconds{issued},
                  .started = milliseconds{started},
                  .ended = milliseconds{ended}});
  }
  /// A letter that leaves `sent`, and is handled (for no time) at `handled`.
  void letter(std::uint32_t rank, const char* from, const char* to, const char* kind, std::uint32_t unit, int sent, int handled, std::uint64_t step = 1) {
    const std::uint64_t flow = tracer_.next_flow();
    tracer_.letter_sent(Rank{rank}, from, kind, flow, at(unit, step), milliseconds{sent});
    tracer_.letter_received(Rank{rank}, to, kind, flow, at(unit, step), milliseconds{handled});
    tracer_.span({.rank = Rank{rank},
                  .track = to,
                  .name = kind,
                  .where = at(unit, step),
                  .issued = milliseconds{sent},
                  .started = milliseconds{handled},
                  .ended = milliseconds{handled} + Nanos{100}});
  }
  void slots(std::uint32_t rank, const char* edge, std::uint32_t count, int time) {
    tracer_.slots_in_use(Rank{rank}, edge, count, milliseconds{time} + Nanos{50});
  }
  [[nodiscard]] RunTimeline timeline() const {
    RunTimeline timeline;
    for (const Rank rank : ranks_) timeline.ranks.push_back(tracer_.snapshot(rank));
    return timeline;
  }

 private:
  static Where at(std::uint32_t unit, std::uint64_t step) { return {EpochId{1}, Step{step}, {}, Unit{unit}}; }
  std::vector<Rank> ranks_;
  RingTracer tracer_;
};

/// gather L0 0–4, forward L0 4–10; its slot goes home at 10: gather L1 10–14, forward L1 14–20; verdict 20–21.
RunTimeline one_slot() {
  HandMade made({Rank{0}});
  made.op(0, "comm", "gather L0", 0, 0, 0, 4);
  made.letter(0, "sharding actor", "compute actor", "WeightsGathered", 0, 4, 4);
  made.op(0, "compute", "forward L0", 0, 4, 4, 10);
  made.letter(0, "sharding actor", "sharding actor", "SlotHome", 0, 10, 10);
  made.slots(0, "weights", 0, 10);
  made.op(0, "comm", "gather L1", 1, 10, 10, 14);
  made.letter(0, "sharding actor", "compute actor", "WeightsGathered", 1, 14, 14);
  made.op(0, "compute", "forward L1", 1, 14, 14, 20);
  made.letter(0, "compute actor", "sharding actor", "MicroBatchDone", 1, 20, 20);
  made.op(0, "comm", "verdict", 0, 20, 20, 21);
  return made.timeline();
}

TEST(Report, OfAHandMadeStepKnowsWhatItsTimeWentInto) {
  const auto report = report_of(one_slot());
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->step_time, milliseconds{21});
  ASSERT_EQ(report->ranks.size(), 1U);
  const TraceReport::OfRank& rank = report->ranks[0];
  EXPECT_EQ(rank.window, milliseconds{21});
  EXPECT_EQ(rank.communication, milliseconds{9});
  EXPECT_EQ(rank.exposed, milliseconds{9});
  EXPECT_EQ(rank.overlap, 0);
  const TraceReport::Lane& compute = rank.lanes.at(1);
  ASSERT_EQ(compute.lane, "compute");
  EXPECT_EQ(compute.busy, milliseconds{12});
  EXPECT_EQ(compute.kinds.at("forward"), milliseconds{12});
  EXPECT_EQ(compute.waits.at("gathered weights"), milliseconds{8});
  EXPECT_EQ(compute.waits.at("the end of the step"), milliseconds{1});
  const TraceReport::Lane& comm = rank.lanes.at(0);
  EXPECT_EQ(comm.waits.at("a free slot of weights"), milliseconds{6});
  EXPECT_EQ(comm.waits.at("the micro-batch's end"), milliseconds{6});
}

TEST(Report, FollowsTheCriticalPathThroughLettersAndOperations) {
  const auto report = report_of(one_slot());
  ASSERT_TRUE(report.ok());
  std::vector<std::string> path;
  for (const TraceReport::Hop& hop : report->path) path.push_back(hop.operation);
  EXPECT_THAT(path, ::testing::ElementsAre("gather L0", "forward L0", "gather L1", "forward L1", "verdict"));
  EXPECT_EQ(report->path_length, milliseconds{21});
  EXPECT_EQ(report->path_gaps, Nanos{0});
  EXPECT_EQ(report->path_kinds.at("gather"), milliseconds{8});
  EXPECT_EQ(report->path[2].via, "a free slot of weights");
}

/// As one_slot, but the thread that brings the slot home sleeps for 3 ms first, and a letter's other end is not in the timeline.
TEST(Report, FollowsTheCriticalPathPastALetterThatLeftLateAndPastOneThatIsNotThere) {
  HandMade made({Rank{0}});
  made.op(0, "comm", "gather L0", 0, 0, 0, 4);
  made.op(0, "compute", "forward L0", 0, 5, 5, 10);  // posted by a handler that the ring has lost
  made.letter(0, "sharding actor", "sharding actor", "SlotHome", 0, 13, 13);
  made.slots(0, "weights", 0, 13);
  made.op(0, "comm", "gather L1", 1, 13, 13, 17);
  made.letter(0, "sharding actor", "compute actor", "WeightsGathered", 1, 17, 17);
  made.op(0, "compute", "forward L1", 1, 17, 17, 20);
  made.letter(0, "compute actor", "sharding actor", "MicroBatchDone", 1, 20, 20);
  made.op(0, "comm", "verdict", 0, 20, 20, 21);
  const auto report = report_of(made.timeline());
  ASSERT_TRUE(report.ok());
  std::vector<std::string> path;
  Nanos sum{0};
  for (const TraceReport::Hop& hop : report->path) {
    path.push_back(hop.operation);
    sum += hop.length + hop.gap;
  }
  EXPECT_THAT(path, ::testing::ElementsAre("gather L0", "forward L0", "gather L1", "forward L1", "verdict"));
  EXPECT_EQ(sum, report->step_time);
  EXPECT_EQ(report->path_gaps, milliseconds{4});
  EXPECT_EQ(report->path[2].gap, milliseconds{3});
  EXPECT_EQ(report->path[1].via, "what the timeline does not show");
}

TEST(Report, OfStepsThatAreNotHeldNamesThoseThatAre) {
  const auto report = report_of(one_slot(), std::pair{Step{7}, Step{9}});
  ASSERT_FALSE(report.ok());
  EXPECT_THAT(report.error().message, HasSubstr("nothing of steps 7 to 9, but of steps 1 to 1"));
}

TEST(Report, NamesTheEdgeWhoseSlotsWouldHelpAndWhatTheyCost) {
  const auto report = report_of(one_slot(), {}, {{"weights", 1, 1048576}, {"gradients", 2, 10}});
  ASSERT_TRUE(report.ok());
  ASSERT_EQ(report->advice.size(), 1U);
  EXPECT_EQ(report->advice[0].edge, "weights");
  EXPECT_EQ(report->advice[0].waited, milliseconds{4}) << "gather L1 could have run under forward L0";
  EXPECT_THAT(report_text(*report), HasSubstr("slots.weights = 2 takes 1.000 MiB more on each rank"));
}

TEST(Report, PutsTheEdgeFirstWhoseSlotGainsMostAndLeavesOutThoseThatGainNothing) {
  const SlotReplay replay{.step = milliseconds{20},
                          .with_one_more = {{"weights", milliseconds{17}}, {"gradients", milliseconds{16}}, {"batches", milliseconds{20}}}};
  const auto report = report_of(one_slot(), {}, {{"weights", 1, 1048576}, {"gradients", 1, 2097152}, {"batches", 2, 10}}, replay);
  ASSERT_TRUE(report.ok());
  ASSERT_EQ(report->advice.size(), 2U);
  EXPECT_EQ(report->advice[0].edge, "gradients") << "though compute waited for weights alone";
  EXPECT_EQ(report->advice[0].gained, milliseconds{4});
  EXPECT_EQ(report->advice[1].gained, milliseconds{3});
  EXPECT_THAT(report_text(*report), HasSubstr("one more gains 4.000 ms a step (20.0 %); compute waited 0.000 ms a step"));
  EXPECT_THAT(report_text(*report), HasSubstr("slots.gradients = 2 takes 2.000 MiB more on each rank"));
}

TEST(Report, NamesTheRankThatKeepsOthersWaiting) {
  HandMade made({Rank{0}, Rank{1}});
  made.op(0, "compute", "backward L0", 0, 0, 0, 5);
  made.op(0, "comm", "reduce L0", 0, 5, 5, 12);
  made.op(1, "compute", "backward L0", 0, 0, 0, 10);
  made.letter(1, "compute actor", "sharding actor", "GradientReady", 0, 10, 10);
  made.op(1, "comm", "reduce L0", 0, 10, 10, 12);
  const auto report = report_of(made.timeline());
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->ranks[0].for_peers, milliseconds{5});
  EXPECT_EQ(report->ranks[0].last_in, 0U);
  EXPECT_EQ(report->ranks[1].last_in, 1U);
  EXPECT_EQ(report->ranks[1].kept_others, milliseconds{5});
  ASSERT_EQ(report->path.size(), 2U);
  EXPECT_EQ(report->path[0].rank, Rank{1}) << "the path goes through the rank that came last";
  EXPECT_EQ(report->path[0].length, milliseconds{10});
  EXPECT_THAT(report_text(*report), HasSubstr("rank 1    last to come in 100.0 % of 1 collectives, kept the others for 5.000 ms a step"));
}

TEST(Report, CountsStagesThatStandIdleAsTheBubble) {
  HandMade made({Rank{0}, Rank{1}});
  made.op(0, "compute", "forward", 0, 0, 0, 10);
  made.op(1, "compute", "forward", 0, 10, 10, 20);
  made.op(1, "compute", "backward", 0, 20, 20, 40);
  made.op(0, "compute", "backward", 0, 40, 40, 60);
  const auto report = report_of(made.timeline());
  ASSERT_TRUE(report.ok());
  EXPECT_DOUBLE_EQ(report->bubble, 0.5);
}

TEST(Report, OfSeveralStepsLeavesOutTheFirst) {
  HandMade made({Rank{0}});
  for (int step = 1; step <= 3; ++step) {
    made.op(0, "compute", "forward L0", 0, 10 * step, 10 * step, 10 * step + (step == 1 ? 9 : 5), static_cast<std::uint64_t>(step));
    made.op(0, "comm", "verdict", 0, 10 * step + 9, 10 * step + 9, 10 * step + 10, static_cast<std::uint64_t>(step));
  }
  const auto report = report_of(made.timeline());
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->first, Step{2});
  EXPECT_EQ(report->ranks[0].window, milliseconds{20});
  EXPECT_DOUBLE_EQ(report->ranks[0].lanes.at(1).share, 0.5);
  const auto first = report_of(made.timeline(), std::pair{Step{1}, Step{1}});
  ASSERT_TRUE(first.ok());
  EXPECT_DOUBLE_EQ(first->ranks[0].lanes.at(1).share, 0.9);
  EXPECT_FALSE(report_of(made.timeline(), std::pair{Step{7}, Step{9}}).ok());
}

TEST(Report, AsJsonHasTheSameNumbers) {
  const auto report = report_of(one_slot());
  ASSERT_TRUE(report.ok());
  const auto json = nlohmann::json::parse(report_json(*report));
  EXPECT_DOUBLE_EQ(json["step_ms"], 21);
  EXPECT_DOUBLE_EQ(json["ranks"][0]["lanes"][1]["waits_ms"]["gathered weights"], 8);
  EXPECT_EQ(json["critical_path"]["hops"].size(), 5U);
}

TEST(Report, OfTwoRunsSideBySideTellsWhatChanged) {
  HandMade faster({Rank{0}});
  faster.op(0, "comm", "gather L0", 0, 0, 0, 4);
  faster.op(0, "compute", "forward L0", 0, 4, 4, 10);
  faster.op(0, "comm", "verdict", 0, 10, 10, 11);
  const auto one = report_of(one_slot()), other = report_of(faster.timeline());
  ASSERT_TRUE(one.ok() && other.ok());
  const std::string text = compare_text(*one, *other, "before", "after");
  EXPECT_THAT(text, HasSubstr("21.000 ms        11.000 ms      -47.6 %"));
  EXPECT_THAT(text, HasSubstr("rank 0 compute busy"));
}

}  // namespace
}  // namespace troupe
