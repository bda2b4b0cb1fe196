#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <latch>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "src/device/lane.hpp"

namespace troupe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Nanos ample{60'000'000'000};

/// Keeps what the lane reported; the lane's thread writes, the test reads after drain or destruction.
class Recorder final : public LaneObserver {
 public:
  struct Entry {
    std::string name;
    Nanos posted, started, ended;
    Outcome outcome;
  };
  void finished(LaneKind, const LaneOperation& operation, Nanos posted, Nanos started, Nanos ended, const Outcome& outcome) override {
    entries.push_back({operation.name, posted, started, ended, outcome});
  }
  std::vector<Entry> entries;
};

class ThreadLane : public ::testing::Test {
 protected:
  void post(const std::string& name, std::function<void(Stream&)> work = {}) {
    LaneOperation operation;
    operation.name = name;
    operation.work = std::move(work);
    operation.done = [this, name](const Outcome& outcome) {
      names.push_back(name);
      outcomes.push_back(outcome);
    };
    lane->post(std::move(operation));
  }

  std::unique_ptr<Clock> clock = make_system_clock();
  Recorder recorder;
  std::vector<std::string> names;  // with outcomes: in order of completion, read after drain
  std::vector<Outcome> outcomes;
  std::unique_ptr<Lane> lane = make_thread_lane(LaneKind::compute, Rank{0}, *clock, &recorder);
};

TEST_F(ThreadLane, RunsOperationsInTheOrderOfPosting) {
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) post(std::to_string(i), [&order, i](Stream&) { order.push_back(i); });
  ASSERT_TRUE(lane->drain(ample));
  ASSERT_EQ(order.size(), 100U);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  EXPECT_EQ(names.size(), 100U);
}

TEST_F(ThreadLane, AThrowIsTheOutcomeFailedWithItsCauseAndTheNextOperationRuns) {
  post("forward L3", [](Stream&) { throw std::runtime_error("no such shape"); });
  post("forward L4");
  ASSERT_TRUE(lane->drain(ample));
  EXPECT_EQ(outcomes[0].kind, Outcome::Kind::failed);
  EXPECT_THAT(outcomes[0].cause, ::testing::AllOf(HasSubstr("forward L3"), HasSubstr("no such shape")));
  EXPECT_TRUE(outcomes[1].ok());
}

TEST_F(ThreadLane, AThrowOfSomethingElseIsAFailureToo) {
  post("odd", [](Stream&) { throw 7; });
  ASSERT_TRUE(lane->drain(ample));
  EXPECT_EQ(outcomes[0].kind, Outcome::Kind::failed);
}

TEST_F(ThreadLane, HaltEndsWhatRunsWhatWaitsAndWhatComesLaterAsHalted) {
  std::latch running(1);
  std::promise<void> go_on;
  bool second_ran = false;
  post("running", [&](Stream&) {
    running.count_down();
    go_on.get_future().wait();
  });
  post("waiting", [&](Stream&) { second_ran = true; });
  running.wait();
  lane->halt("rank 1 died");
  lane->halt("a later cause");
  post("later", [&](Stream&) { second_ran = true; });
  go_on.set_value();
  ASSERT_TRUE(lane->drain(ample));
  EXPECT_FALSE(second_ran);
  EXPECT_THAT(names, ElementsAre("running", "waiting", "later"));
  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.kind, Outcome::Kind::halted);
    EXPECT_EQ(outcome.cause, "rank 1 died");
  }
}

TEST_F(ThreadLane, AFailureThatAHaltProvokedStaysAFailure) {
  std::latch running(1);
  std::promise<void> go_on;
  post("reduce L1", [&](Stream&) {
    running.count_down();
    go_on.get_future().wait();
    throw std::runtime_error("aborted");
  });
  running.wait();
  lane->halt("rank 1 died");
  go_on.set_value();
  ASSERT_TRUE(lane->drain(ample));
  EXPECT_EQ(outcomes[0].kind, Outcome::Kind::failed);
}

TEST_F(ThreadLane, AFailureThatHaltsTheLaneEndsWhatIsBehindItAsHalted) {
  bool ran = false;
  LaneOperation reduce;
  reduce.name = "reduce L1";
  reduce.failure_halts_lane = true;
  reduce.work = [](Stream&) { throw std::runtime_error("rank 1 was lost"); };
  reduce.done = [this](const Outcome& outcome) { outcomes.push_back(outcome); };
  lane->post(std::move(reduce));
  post("reduce L0", [&](Stream&) { ran = true; });
  ASSERT_TRUE(lane->drain(ample));
  EXPECT_FALSE(ran);
  EXPECT_EQ(outcomes[0].kind, Outcome::Kind::failed);
  EXPECT_EQ(outcomes[1].kind, Outcome::Kind::halted);
  EXPECT_THAT(outcomes[1].cause, HasSubstr("rank 1 was lost"));
}

TEST_F(ThreadLane, TellsTheOutcomeBeforeTheLeasesGo) {
  std::vector<std::string> order;
  LaneOperation operation;
  operation.name = "gather L0";
  operation.leases.emplace_back(SlotIndex{0}, std::span<std::byte>{}, [&] { order.emplace_back("slot home"); });
  operation.done = [&](const Outcome&) { order.emplace_back("outcome"); };
  lane->post(std::move(operation));
  ASSERT_TRUE(lane->drain(ample));
  EXPECT_THAT(order, ElementsAre("outcome", "slot home"));
}

TEST_F(ThreadLane, ReleasesWhatTheWorkHeldBeforeItTellsTheOutcome) {
  auto held = std::make_shared<int>(1);
  std::weak_ptr<int> watch = held;
  bool gone = false;
  LaneOperation operation;
  operation.name = "forward L0";
  operation.work = [kept = std::move(held)](Stream&) {};
  operation.done = [&](const Outcome&) { gone = watch.expired(); };
  lane->post(std::move(operation));
  ASSERT_TRUE(lane->drain(ample));
  EXPECT_TRUE(gone);
}

TEST_F(ThreadLane, DestructionEndsEverythingThatWasPosted) {
  std::promise<void> go_on;
  post("first", [&](Stream&) { go_on.get_future().wait(); });
  for (int i = 0; i < 10; ++i) post("later");
  lane->halt("the end");
  go_on.set_value();
  lane.reset();
  EXPECT_EQ(names.size(), 11U);
}

TEST_F(ThreadLane, ReportsWhatItIsAt) {
  std::latch running(1);
  std::promise<void> go_on;
  EXPECT_EQ(lane->progress().oldest_pending, "");
  post("backward L2", [&](Stream&) {
    running.count_down();
    go_on.get_future().wait();
  });
  post("backward L1");
  running.wait();
  const LaneProgress progress = lane->progress();
  EXPECT_EQ(progress.posted, 2U);
  EXPECT_EQ(progress.completed, 0U);
  EXPECT_EQ(progress.oldest_pending, "backward L2");
  EXPECT_GT(progress.pending_since, Nanos{0});
  EXPECT_FALSE(lane->drain(Nanos{0}));
  go_on.set_value();
  ASSERT_TRUE(lane->drain(ample));
  EXPECT_EQ(lane->progress().completed, 2U);
}

TEST_F(ThreadLane, TellsItsObserverWhenEachOperationWasPostedStartedAndEnded) {
  post("one");
  post("two", [](Stream&) { throw std::runtime_error("no"); });
  ASSERT_TRUE(lane->drain(ample));
  ASSERT_EQ(recorder.entries.size(), 2U);
  for (const auto& entry : recorder.entries) {
    EXPECT_LE(entry.posted, entry.started);
    EXPECT_LE(entry.started, entry.ended);
  }
  EXPECT_LE(recorder.entries[0].ended, recorder.entries[1].started);
  EXPECT_EQ(recorder.entries[1].outcome.kind, Outcome::Kind::failed);
}

TEST(Lanes, HaveNames) {
  EXPECT_STREQ(name_of(LaneKind::compute), "compute");
  EXPECT_STREQ(name_of(LaneKind::storage), "storage");
}

}  // namespace
}  // namespace troupe
