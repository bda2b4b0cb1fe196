#include "tools/launcher/snapshot_courier.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <mutex>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"
#include "src/runtime/directory.hpp"

namespace troupe {
namespace {

/// An agent as far as its memory and letters go.
class Agent {
 public:
  Agent(Rank self, const Clock& clock)
      : memory(AgentMemory::create().value()), courier(self, [this](const SnapshotName& name, const std::string& problem) { told(name, problem); }) {
    TransportOptions options;
    options.self = {self, Incarnation{0}};
    link = std::make_unique<LetterLink>(
        directory_, clock, *log_, options, [](Rank, const std::string&) {}, [this](TransportHandlers handlers) { return courier.around(std::move(handlers)); });
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
    place.reserve(bytes, 2);
    const auto into = place.open(name.slot);
    for (std::size_t i = 0; i < bytes; i += 509) into[i] = static_cast<std::byte>((i * 31 + (i >> 12U) * 7 + name.step.value()) & 0xffU);
    place.seal(name.slot, name.epoch, name.step, bytes);
  }
  [[nodiscard]] std::vector<std::byte> held(const SnapshotName& name) const {
    const auto kept = AgentMemory(memory, name.rank.value()).own(name.slot, name.epoch, name.step);
    if (!kept) return {};
    return {kept->bytes().begin(), kept->bytes().end()};
  }
  /// Waits until so many were told of; the problems.
  std::vector<std::string> wait(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds{60}, [&] { return problems_.size() >= count; });
    return problems_;
  }

  int memory;
  SnapshotCourier courier;
  std::unique_ptr<LetterLink> link;

 private:
  void told(const SnapshotName&, const std::string& problem) {
    const std::lock_guard lock(mutex_);
    problems_.push_back(problem);
    changed_.notify_all();
  }
  std::unique_ptr<Log> log_ = make_null_log();
  Directory directory_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> problems_;
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
  AgentMemory lost(far_.memory, 5);
  lost.reserve(wanted.size(), 2);
  (void)lost.open(1);
  EXPECT_TRUE(far_.held(name).empty());
  EXPECT_EQ(near_.courier.send_all(Rank{4}, 4, agent_rank(1)), 1U);
  EXPECT_EQ(far_.wait(1), std::vector<std::string>{""});
  EXPECT_EQ(far_.held(name), wanted);
}

TEST_F(SnapshotCourierTest, SnapshotsThatGoBothWaysAtOnceDoNotWaitForEachOther) {
  constexpr std::size_t bytes = std::size_t{24} << 20U;  // four are more than a courier has buffers for
  for (std::uint64_t i = 0; i < 4; ++i) {
    near_.keep({Rank{static_cast<std::uint32_t>(i)}, 0, EpochId{1}, Step{i + 1}}, bytes);
    far_.keep({Rank{static_cast<std::uint32_t>(i + 8)}, 0, EpochId{1}, Step{i + 1}}, bytes);
  }
  EXPECT_EQ(near_.courier.send_all(Rank{0}, 4, agent_rank(1)), 4U);
  EXPECT_EQ(far_.courier.send_all(Rank{8}, 4, launcher_rank), 4U);
  EXPECT_EQ(near_.wait(4), std::vector<std::string>(4));
  EXPECT_EQ(far_.wait(4), std::vector<std::string>(4));
}

TEST_F(SnapshotCourierTest, WhatIsNotThereOrHasNobodyToGoToIsToldByName) {
  const SnapshotName name{Rank{2}, 0, EpochId{1}, Step{9}};
  far_.courier.send(name, launcher_rank);
  EXPECT_NE(far_.wait(1)[0].find("the snapshot of rank 2 after step 9 was not sent to another host: the snapshot of step 9"), std::string::npos);
  far_.keep(name, 1000);
  far_.courier.send(name, agent_rank(7));
  EXPECT_NE(far_.wait(2)[1].find("is not known"), std::string::npos) << far_.wait(2)[1];
}

}  // namespace
}  // namespace troupe
