#include "src/runtime/faulty_lane.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <csignal>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "src/trace/tracer.hpp"

namespace troupe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr Nanos ample{60'000'000'000};

/// Time that the test moves while other threads set timers and wait.
class SharedManualClock final : public Clock {
 public:
  [[nodiscard]] Nanos now() const override {
    const std::lock_guard lock(mutex_);
    return now_;
  }
  void after(Nanos delay, std::function<void()> then) override {
    {
      const std::lock_guard lock(mutex_);
      timers_.emplace(now_ + delay, std::move(then));
    }
    changed_.notify_all();
  }
  /// Blocks until somebody waits for a time.
  void wait_for_timer() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !timers_.empty(); });
  }
  void advance(Nanos by) {
    std::vector<std::function<void()>> due;
    {
      const std::lock_guard lock(mutex_);
      now_ += by;
      while (!timers_.empty() && timers_.begin()->first <= now_) due.push_back(std::move(timers_.extract(timers_.begin()).mapped()));
    }
    for (const auto& then : due) then();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Nanos now_{0};
  std::multimap<Nanos, std::function<void()>> timers_;
};

class NoPost final : public PostOffice {
 public:
  void post(std::shared_ptr<const Parcel>) override {}
};

class KeptLines final : public Log {
 public:
  void write(LogLevel, std::string_view text) override {
    const std::lock_guard lock(mutex_);
    lines_.emplace_back(text);
    changed_.notify_all();
  }
  std::vector<std::string> lines() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }
  void wait_for_line() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !lines_.empty(); });
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> lines_;
};

class KeptMarks final : public Tracer {
 public:
  void finished(LaneKind, const LaneOperation& operation, Nanos, Nanos started, Nanos ended, const Outcome&) override {
    lengths.emplace_back(operation.name, ended - started);
  }
  void span(Span) override {}
  void letter_sent(Rank, std::string_view, std::string_view, std::uint64_t, const Where&, Nanos) override {}
  void letter_received(Rank, std::string_view, std::string_view, std::uint64_t, const Where&, Nanos) override {}
  void slots_in_use(Rank, std::string_view, std::uint32_t, Nanos) override {}
  void mark(Rank rank, std::string text, Nanos) override { marks.emplace_back(rank, std::move(text)); }
  [[nodiscard]] std::uint64_t next_flow() override { return 0; }
  std::vector<std::pair<std::string, Nanos>> lengths;  // with marks: written by the lane's thread, read after drain
  std::vector<std::pair<Rank, std::string>> marks;
};

class FaultyLane : public ::testing::Test {
 protected:
  std::shared_ptr<Lane> open(const std::vector<std::string>& texts, LaneKind kind = LaneKind::comm) {
    std::vector<FaultRule> rules;
    for (const auto& text : texts) rules.push_back(parse_fault_rule(text).value());
    auto plan = std::make_shared<FaultPlan>(Rank{1}, 0, std::move(rules));
    return make_faulty_lane(make_thread_lane(kind, Rank{1}, clock, &tracer), kind, Rank{1}, std::move(plan), runtime);
  }
  void post(Lane& lane, const std::string& name, std::uint64_t step = 1, bool collective = false) {
    LaneOperation operation;
    operation.name = name;
    operation.where = {EpochId{1}, Step{step}, Micro{0}, Unit{3}};
    operation.failure_halts_lane = collective;
    operation.work = [this, name](Stream&) { worked.push_back(name); };
    operation.done = [this](const Outcome& outcome) { outcomes.push_back(outcome); };
    lane.post(std::move(operation));
  }

  SharedManualClock clock;
  KeptLines log;
  NoPost post_office;
  KeptMarks tracer;
  Runtime runtime{clock, log, post_office, &tracer};
  std::vector<std::string> worked;  // with outcomes: written by the lane's thread, read after drain
  std::vector<Outcome> outcomes;
};

TEST_F(FaultyLane, IsTheLaneBelowWhereThereAreNoRules) {
  const std::shared_ptr<Lane> below = make_thread_lane(LaneKind::comm, Rank{1}, clock, nullptr);
  EXPECT_EQ(make_faulty_lane(below, LaneKind::comm, Rank{1}, nullptr, runtime), below);
  EXPECT_EQ(make_faulty_lane(below, LaneKind::comm, Rank{1}, std::make_shared<FaultPlan>(), runtime), below);
}

TEST_F(FaultyLane, ADelayLengthensItsOperationAloneByTheClocksTime) {
  const auto lane = open({"site=lane kind=gather step=2 action=delay for=5ms"});
  post(*lane, "gather L3", 1);
  post(*lane, "gather L3", 2);
  post(*lane, "gather L3", 3);
  clock.wait_for_timer();
  clock.advance(std::chrono::milliseconds{5});
  ASSERT_TRUE(lane->drain(ample));
  EXPECT_THAT(worked, SizeIs(3));
  EXPECT_THAT(tracer.lengths, SizeIs(3));
  EXPECT_EQ(tracer.lengths[0].second, Nanos{0});
  EXPECT_EQ(tracer.lengths[1].second, std::chrono::milliseconds{5});
  EXPECT_EQ(tracer.lengths[2].second, Nanos{0});
}

TEST_F(FaultyLane, EachFiringIsALineInTheLogAndAMarkInTheTrace) {
  const auto lane = open({"site=lane step=9 action=fail", "site=lane kind=gather action=fail"});
  post(*lane, "gather L3");
  ASSERT_TRUE(lane->drain(ample));
  ASSERT_THAT(log.lines(), SizeIs(1));
  EXPECT_EQ(log.lines()[0], "fault rule 2 (site=lane kind=\"gather\" action=fail) fired: lane comm, gather L3, step 1, micro-batch 0, L3");
  EXPECT_THAT(tracer.marks, ElementsAre(std::pair{Rank{1}, log.lines()[0]}));
}

TEST_F(FaultyLane, AFailureIsTheOutcomeAndTheWorkIsNotDone) {
  const auto lane = open({"site=lane kind=gather action=fail"});
  post(*lane, "gather L3");
  post(*lane, "reduce L3");
  ASSERT_TRUE(lane->drain(ample));
  EXPECT_THAT(worked, ElementsAre("reduce L3"));
  EXPECT_EQ(outcomes.at(0).kind, Outcome::Kind::failed);
  EXPECT_THAT(outcomes.at(0).cause, HasSubstr("gather L3: fault rule 1"));
  EXPECT_TRUE(outcomes.at(1).ok());
}

TEST_F(FaultyLane, AStallWithoutATimeLastsUntilTheLaneIsHalted) {
  const auto lane = open({"site=lane action=stall"});
  post(*lane, "gather L3");
  log.wait_for_line();
  clock.advance(ample);
  EXPECT_EQ(lane->progress().completed, 0U);
  lane->halt("the epoch ends");
  ASSERT_TRUE(lane->drain(ample));
  EXPECT_EQ(outcomes.at(0).kind, Outcome::Kind::halted);
}

TEST_F(FaultyLane, GoesAwayWhileAnOperationStalls) {
  auto lane = open({"site=lane action=stall"});
  post(*lane, "gather L3");
  log.wait_for_line();
  lane.reset();
  EXPECT_THAT(worked, ElementsAre("gather L3"));
}

TEST_F(FaultyLane, OnlyWhatHaltsTheLaneByFailingIsACollective) {
  const auto lane = open({"site=collective action=fail times=always"});
  post(*lane, "scales", 1, false);
  post(*lane, "gather L3", 1, true);
  ASSERT_TRUE(lane->drain(ample));
  EXPECT_THAT(worked, ElementsAre("scales"));
}

TEST_F(FaultyLane, ACrashKillsTheProcessAtTheFirstComputeOperationOfItsStep) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [this](LaneKind kind, std::uint64_t step) {
    const auto lane = open({"site=process step=2 action=crash"}, kind);
    post(*lane, "forward L0", 1);
    post(*lane, "forward L0", step);
    ASSERT_TRUE(lane->drain(ample));
  };
  EXPECT_EXIT(run(LaneKind::compute, 2), ::testing::KilledBySignal(SIGKILL), "");
  run(LaneKind::compute, 3);
  run(LaneKind::comm, 2);
  EXPECT_THAT(worked, SizeIs(4));
}

}  // namespace
}  // namespace troupe
