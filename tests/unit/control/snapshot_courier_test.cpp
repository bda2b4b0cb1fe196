#include "tools/launcher/snapshot_courier.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"
#include "src/runtime/directory.hpp"

namespace troupe {
namespace {

/// An agent as far as its memory and letters go.
class Agent {
 public:
  Agent(Rank self, const Clock& clock) : memory(AgentMemory::create().value()), courier(self, [this](const SnapshotCourier::News& news) { told(news); }) {
    TransportOptions options;
    options.self = {self, Incarnation{0}};
    link = std::make_unique<LetterLink>(
        directory_, clock, *log_, options, [](Rank, const std::string&) {},
        [this](TransportHandlers handlers) { return losing(courier.around(std::move(handlers))); });
    courier.use(*link);
    courier.use_memory(memory);
  }
  ~Agent() {
    courier.stop();
    link.reset();
    ::close(memory);
  }
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  /// A snapshot of so many bytes, no two pieces of which are alike.
  void keep(const SnapshotName& name, std::size_t bytes) {
    AgentMemory place(memory, name.rank.value());
    place.reserve_one(bytes, name.slot);
    const auto into = place.open(name.slot);
    for (std::size_t i = 0; i < bytes; i += 509) into[i] = static_cast<std::byte>((i * 31 + (i >> 12U) * 7 + name.step.value()) & 0xffU);
    place.seal(name.slot, name.epoch, name.step, bytes);
  }
  [[nodiscard]] std::vector<std::byte> held(const SnapshotName& name) const {
    const auto kept = AgentMemory(memory, name.rank.value()).own(name.slot, name.epoch, name.step);
    if (!kept) return {};
    return {kept->bytes().begin(), kept->bytes().end()};
  }
  /// Bytes that the system has given to its memory.
  [[nodiscard]] std::uint64_t taken() const {
    struct stat found {};
    EXPECT_EQ(::fstat(memory, &found), 0);
    return static_cast<std::uint64_t>(found.st_blocks) * 512;
  }
  /// This piece is dropped when it comes next, as one whose hash is wrong.
  void lose_piece(std::uint32_t number) {
    const std::lock_guard lock(mutex_);
    to_lose_ = number;
  }
  /// Waits until so many were told of, but for what has only left; the problems.
  std::vector<std::string> wait(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds{60}, [&] { return problems_.size() >= count; });
    return problems_;
  }

  void wait_until_sent(std::size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds{60}, [&] { return sent_.size() >= count; }));
  }

  int memory;
  SnapshotCourier courier;
  std::unique_ptr<LetterLink> link;

 private:
  TransportHandlers losing(TransportHandlers others) {
    TransportHandlers handlers = others;
    handlers.letter = [this, next = std::move(others.letter)](std::shared_ptr<const Parcel> parcel) {
      {
        const std::lock_guard lock(mutex_);
        if (to_lose_ && *to_lose_ == where_of(parcel->envelope()).unit.value()) return to_lose_.reset();
      }
      next(std::move(parcel));
    };
    return handlers;
  }
  void told(const SnapshotCourier::News& news) {
    const std::lock_guard lock(mutex_);
    (news.sent ? sent_ : problems_).push_back(news.problem);
    changed_.notify_all();
  }
  std::unique_ptr<Log> log_ = make_null_log();
  Directory directory_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> problems_, sent_;
  std::optional<std::uint32_t> to_lose_;
};

class SnapshotCourierTest : public ::testing::Test {
 protected:
  SnapshotCourierTest() {
    EXPECT_TRUE(near_.link->connect(agent_rank(1), 1, Incarnation{0}, far_.link->address()).ok());
    EXPECT_TRUE(far_.link->connect(launcher_rank, 1, Incarnation{0}, near_.link->address()).ok());
  }
  std::unique_ptr<Clock> clock_ = make_system_clock();
  Agent near_{launcher_rank, *clock_}, far_{agent_rank(1), *clock_};
};

TEST_F(SnapshotCourierTest, ASnapshotOfManyPiecesComesToAnotherHostsMemoryAndBack) {
  const SnapshotName name{Rank{5}, 1, EpochId{2}, Step{70}};
  far_.keep(name, (std::size_t{30} << 20U) + 17);
  const auto wanted = far_.held(name);
  far_.courier.send(name, launcher_rank);
  EXPECT_EQ(near_.wait(1), std::vector<std::string>{""});
  EXPECT_EQ(near_.held(name), wanted);
  AgentMemory(far_.memory, 5).forget(EpochId{3});  // as if another agent had come there
  EXPECT_TRUE(far_.held(name).empty());
  EXPECT_EQ(near_.courier.held(), std::vector{name});
  near_.courier.send(name, agent_rank(1));
  EXPECT_EQ(far_.wait(1), std::vector<std::string>{""});
  EXPECT_EQ(far_.held(name), wanted);
}

TEST_F(SnapshotCourierTest, SnapshotsThatGoBothWaysAtOnceDoNotWaitForEachOther) {
  constexpr std::size_t bytes = std::size_t{24} << 20U;  // four are more than a courier has buffers for
  for (std::uint64_t i = 0; i < 4; ++i) {
    near_.keep({Rank{static_cast<std::uint32_t>(i)}, 0, EpochId{1}, Step{i + 1}}, bytes);
    far_.keep({Rank{static_cast<std::uint32_t>(i + 8)}, 0, EpochId{1}, Step{i + 1}}, bytes);
  }
  for (const SnapshotName& name : near_.courier.held()) near_.courier.send(name, agent_rank(1));
  for (const SnapshotName& name : far_.courier.held()) far_.courier.send(name, launcher_rank);
  EXPECT_EQ(near_.wait(4), std::vector<std::string>(4));
  EXPECT_EQ(far_.wait(4), std::vector<std::string>(4));
}

TEST_F(SnapshotCourierTest, ACopyThatLacksAPieceIsNotWholeUntilThatPieceHasComeToo) {
  const SnapshotName name{Rank{5}, 1, EpochId{2}, Step{70}};
  far_.keep(name, (std::size_t{30} << 20U) + 17);
  near_.lose_piece(3);
  far_.courier.send(name, launcher_rank);
  far_.wait_until_sent(1);
  far_.courier.send(name, launcher_rank);
  EXPECT_EQ(near_.wait(1).front(), "");
  EXPECT_EQ(near_.held(name), far_.held(name));
}

TEST_F(SnapshotCourierTest, WhatComesLateReplacesNothingNewer) {
  const SnapshotName older{Rank{5}, 1, EpochId{1}, Step{70}}, newer{Rank{5}, 1, EpochId{2}, Step{60}};
  far_.keep(older, 5000);
  near_.keep(newer, 5000);
  const auto wanted = near_.held(newer);
  far_.courier.send(older, launcher_rank);
  far_.wait_until_sent(1);
  far_.keep(newer, 5000);
  far_.courier.send(newer, launcher_rank);  // it is there: told so, once more
  EXPECT_EQ(near_.wait(1), std::vector<std::string>{""});
  EXPECT_EQ(near_.held(newer), wanted);
  EXPECT_EQ(near_.courier.held(), std::vector{newer});
}

TEST_F(SnapshotCourierTest, WhatComesLateDoesNotTouchASlotThatItsRankFills) {
  const SnapshotName late{Rank{5}, 1, EpochId{2}, Step{70}}, newer{Rank{5}, 1, EpochId{2}, Step{80}}, behind{Rank{6}, 0, EpochId{2}, Step{70}};
  constexpr std::size_t bytes = 5000;
  far_.keep(late, bytes);
  far_.keep(behind, bytes);
  far_.courier.send(late, launcher_rank);
  EXPECT_EQ(near_.wait(1), std::vector<std::string>{""});
  AgentMemory own(near_.memory, 5);
  own.reserve(bytes, 2);
  const auto into = own.open(1);
  std::ranges::fill(into, std::byte{0x5a});
  far_.courier.send(late, launcher_rank);
  far_.courier.send(behind, launcher_rank);  // taken in after the other
  EXPECT_EQ(near_.wait(2), std::vector<std::string>(2));
  EXPECT_EQ(near_.courier.held(), std::vector{behind}) << "it is not whole";
  own.seal(1, newer.epoch, newer.step, bytes);
  EXPECT_EQ(near_.held(newer), std::vector<std::byte>(bytes, std::byte{0x5a}));
}

TEST_F(SnapshotCourierTest, WhatCameFromOtherHostsIsForgottenWhenItsEpochIsOver) {
  const SnapshotName first{Rank{5}, 0, EpochId{1}, Step{70}}, second{Rank{6}, 0, EpochId{2}, Step{80}}, own{Rank{1}, 0, EpochId{1}, Step{70}};
  far_.keep(first, 5000);
  far_.keep(second, 5000);
  near_.keep(own, 5000);
  far_.courier.send(first, launcher_rank);
  far_.courier.send(second, launcher_rank);
  EXPECT_EQ(near_.wait(2), std::vector<std::string>(2));
  near_.courier.forget(EpochId{2}, Rank{0}, 4);
  far_.keep(SnapshotName{Rank{7}, 0, EpochId{2}, Step{80}}, 5000);
  far_.courier.send(SnapshotName{Rank{7}, 0, EpochId{2}, Step{80}}, launcher_rank);  // taken in after it has forgotten
  EXPECT_EQ(near_.wait(3), std::vector<std::string>(3));
  EXPECT_TRUE(near_.held(first).empty());
  EXPECT_FALSE(near_.held(second).empty());
  EXPECT_FALSE(near_.held(own).empty());
}

TEST_F(SnapshotCourierTest, ACopyTakesTheMemoryOfItsOwnSlotAndAHalfOneGivesItBack) {
  constexpr std::uint64_t bytes = std::uint64_t{12} << 20U;
  const SnapshotName whole{Rank{5}, 3, EpochId{2}, Step{70}}, half{Rank{6}, 2, EpochId{1}, Step{60}};
  const SnapshotName behind{Rank{7}, 0, EpochId{2}, Step{70}}, last{Rank{8}, 0, EpochId{2}, Step{70}};
  for (const SnapshotName& name : {whole, half}) far_.keep(name, bytes);
  for (const SnapshotName& name : {behind, last}) far_.keep(name, 1000);
  far_.courier.send(whole, launcher_rank);
  EXPECT_EQ(near_.wait(1), std::vector<std::string>{""});
  EXPECT_LT(near_.taken(), bytes * 3 / 2);
  near_.lose_piece(1);
  far_.courier.send(half, launcher_rank);
  far_.courier.send(behind, launcher_rank);
  EXPECT_EQ(near_.wait(2), std::vector<std::string>(2));
  EXPECT_GE(near_.taken(), 2 * bytes);
  near_.courier.forget(EpochId{2}, Rank{0}, 4);
  far_.courier.send(last, launcher_rank);  // taken in after it has forgotten
  EXPECT_EQ(near_.wait(3), std::vector<std::string>(3));
  EXPECT_EQ(near_.courier.held(), (std::vector{whole, behind, last}));
  EXPECT_LT(near_.taken(), bytes * 3 / 2);
}

TEST_F(SnapshotCourierTest, WhatIsNotThereOrHasNobodyToGoToIsToldByName) {
  const SnapshotName name{Rank{2}, 0, EpochId{1}, Step{9}};
  far_.courier.send(name, launcher_rank);
  EXPECT_NE(far_.wait(1)[0].find("the snapshot of rank 2 after step 9 was not sent to another host: the snapshot of step 9"), std::string::npos);
  far_.keep(name, 1000);
  far_.courier.send(name, agent_rank(7));
  EXPECT_NE(far_.wait(2)[1].find("is not known"), std::string::npos) << far_.wait(2)[1];
  far_.courier.send({Rank{AgentMemory::largest_place}, 0, EpochId{1}, Step{9}}, launcher_rank);
  EXPECT_NE(far_.wait(3)[2].find("has no such place"), std::string::npos) << far_.wait(3)[2];
  far_.courier.send({Rank{2}, 1U << 26U, EpochId{1}, Step{9}}, launcher_rank);
  EXPECT_NE(far_.wait(4)[3].find("has no such place"), std::string::npos) << far_.wait(4)[3];
}

}  // namespace
}  // namespace troupe
