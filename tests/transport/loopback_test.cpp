#include "src/transport/loopback.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/transport/node.hpp"

namespace troupe::test {
namespace {

/// Time that the test moves.
class ManualClock final : public Clock {
 public:
  [[nodiscard]] Nanos now() const override { return now_; }
  void after(Nanos delay, std::function<void()> then) override { timers_.push_back({now_ + delay, std::move(then)}); }
  /// Runs everything that is due until `until`, in order.
  void run(Nanos until = Nanos::max()) {
    for (;;) {
      const auto next = std::min_element(timers_.begin(), timers_.end(), [](const Timer& a, const Timer& b) { return a.at < b.at; });
      if (next == timers_.end() || next->at > until) break;
      Timer timer = std::move(*next);
      timers_.erase(next);
      now_ = std::max(now_, timer.at);
      timer.then();
    }
  }

 private:
  struct Timer {
    Nanos at;
    std::function<void()> then;
  };
  Nanos now_{0};
  std::vector<Timer> timers_;
};

constexpr Rank a{0}, b{1};

struct End {
  std::vector<std::uint64_t> steps;
  std::vector<std::shared_ptr<const Parcel>> letters;
  std::vector<std::string> lost;
  int left = 0;
  std::vector<std::byte> slot = std::vector<std::byte>(64);
  bool slot_used = false;
  std::unique_ptr<Transport> transport;

  End(LoopbackNetwork& network, Rank rank) {
    TransportHandlers handlers;
    handlers.letter = [this](std::shared_ptr<const Parcel> parcel) {
      steps.push_back(parcel->envelope().getWhere().getStep());
      letters.push_back(std::move(parcel));
    };
    handlers.slot_for = [this](schema::Envelope::Reader, std::uint64_t bytes) {
      if (slot_used || bytes > slot.size()) return Lease{};
      slot_used = true;
      return Lease{SlotIndex{0}, slot, [this] { slot_used = false; }};
    };
    handlers.peer_lost = [this](Rank, const std::string& cause) { lost.push_back(cause); };
    handlers.peer_left = [this](Rank) { ++left; };
    TransportOptions options;
    options.session = test_session();
    options.self = {rank, Incarnation{0}};
    transport = network.join(options, std::move(handlers));
  }
  std::uint64_t refused(FrameProblem problem) { return transport->counters().refused[static_cast<std::size_t>(problem)]; }
};

class Loopback : public testing::Test {
 protected:
  /// The fate of the frame with this number; all others arrive.
  void start(std::uint64_t number = 0, const FrameFate& fate = {}) {
    network = std::make_unique<LoopbackNetwork>(clock, std::chrono::milliseconds(1),
                                                [=](Rank, Rank, std::uint64_t n, schema::Envelope::Reader) { return n == number ? fate : FrameFate{}; });
    left = std::make_unique<End>(*network, a);
    right = std::make_unique<End>(*network, b);
    ASSERT_TRUE(left->transport->connect(b, Incarnation{0}, right->transport->address()).ok());
    ASSERT_TRUE(right->transport->connect(a, Incarnation{0}, left->transport->address()).ok());
  }
  void send_steps(std::uint64_t count) {
    for (std::uint64_t step = 1; step <= count; ++step) {
      left->transport->send(b, batch(a, b, step), [this](const Result<void>& result) { ++(result.ok() ? sent : failed); });
    }
  }
  ManualClock clock;
  std::unique_ptr<LoopbackNetwork> network;
  std::unique_ptr<End> left, right;
  int sent = 0, failed = 0;
};

using Steps = std::vector<std::uint64_t>;

TEST_F(Loopback, DeliversInOrderAfterItsLatency) {
  start();
  send_steps(3);
  clock.run(std::chrono::microseconds(999));
  EXPECT_TRUE(right->steps.empty());
  clock.run();
  EXPECT_EQ(right->steps, (Steps{1, 2, 3}));
  EXPECT_EQ(sent, 3);
}

TEST_F(Loopback, LosesAFrameThatIsDropped) {
  start(2, {.drop = true});
  send_steps(3);
  clock.run();
  EXPECT_EQ(right->steps, (Steps{1, 3}));
  EXPECT_EQ(sent, 3) << "a sender does not hear of a frame that a network lost";
}

TEST_F(Loopback, RefusesTheSecondOfADuplicatedFrame) {
  start(2, {.duplicate = true});
  send_steps(3);
  clock.run();
  EXPECT_EQ(right->steps, (Steps{1, 2, 3}));
  EXPECT_EQ(right->refused(FrameProblem::sequence), 1U);
}

TEST_F(Loopback, RefusesACorruptedFrame) {
  start(2, {.corrupt = true});
  send_steps(3);
  clock.run();
  EXPECT_EQ(right->steps, (Steps{1, 3}));
  EXPECT_EQ(right->refused(FrameProblem::mac), 1U);
}

TEST_F(Loopback, RefusesAFrameThatComesAfterItsSuccessor) {
  start(2, {.reorder = true});
  send_steps(3);
  clock.run();
  EXPECT_EQ(right->steps, (Steps{1, 3}));
  EXPECT_EQ(right->refused(FrameProblem::sequence), 1U);
}

TEST_F(Loopback, KeepsTheOrderBehindADelayedFrame) {
  start(1, {.delay = std::chrono::milliseconds(10)});
  send_steps(2);
  clock.run(std::chrono::milliseconds(10));
  EXPECT_TRUE(right->steps.empty());
  clock.run();
  EXPECT_EQ(right->steps, (Steps{1, 2}));
}

TEST_F(Loopback, ParksAPayloadUntilASlotIsFree) {
  start();
  for (std::uint64_t step = 1; step <= 2; ++step) left->transport->send(b, batch(a, b, step, 64), {});
  clock.run();
  EXPECT_EQ(right->steps, Steps{1});
  EXPECT_TRUE(is_batch_payload(right->letters[0]->lease().bytes(), 1));
  EXPECT_EQ(right->transport->counters().parked, 1U);
  right->letters.clear();
  right->transport->slot_available();
  clock.run();
  EXPECT_EQ(right->steps, (Steps{1, 2}));
  EXPECT_TRUE(is_batch_payload(right->letters[0]->lease().bytes(), 2));
  right->letters.clear();
}

TEST_F(Loopback, TellsOfAKilledProcessAndFailsWhatIsSentToIt) {
  start();
  send_steps(1);
  network->kill(b, std::chrono::milliseconds(100));
  clock.run();
  EXPECT_EQ(left->lost, std::vector<std::string>{"killed"});
  EXPECT_TRUE(right->steps.empty());
  EXPECT_EQ(failed, 1);
  send_steps(1);
  EXPECT_EQ(failed, 2);
}

TEST_F(Loopback, DeliversEverythingBeforeACleanClose) {
  start();
  send_steps(2);
  bool closed = false;
  left->transport->close(b, CloseMode::flush, std::chrono::seconds(1), [&](const Result<void>& result) { closed = result.ok(); });
  clock.run();
  EXPECT_TRUE(closed);
  EXPECT_EQ(right->steps, (Steps{1, 2}));
  EXPECT_EQ(right->left, 1);
  send_steps(1);
  EXPECT_EQ(failed, 1);
}

TEST_F(Loopback, HoldsLettersForAReceiverThatConnectsLater) {
  network = std::make_unique<LoopbackNetwork>(clock);
  left = std::make_unique<End>(*network, a);
  right = std::make_unique<End>(*network, b);
  ASSERT_TRUE(left->transport->connect(b, Incarnation{0}, right->transport->address()).ok());
  send_steps(2);
  clock.run();
  EXPECT_TRUE(right->steps.empty());
  ASSERT_TRUE(right->transport->connect(a, Incarnation{0}, left->transport->address()).ok());
  clock.run();
  EXPECT_EQ(right->steps, (Steps{1, 2}));
}

TEST_F(Loopback, AnswersWhatIsPendingWhenATransportGoes) {
  start();
  send_steps(3);
  left->transport.reset();
  EXPECT_EQ(failed, 3);
  clock.run();
  EXPECT_TRUE(right->steps.empty());
}

}  // namespace
}  // namespace troupe::test
