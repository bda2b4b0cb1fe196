#include "src/checkpoint/agent_memory.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <vector>

namespace troupe {
namespace {

struct HostStream final : Stream {};

/// A rank's state: two tensors, of 5 and of 70,000 rows.
struct State {
  std::vector<float> small = std::vector<float>(5), large = std::vector<float>(70000);
  explicit State(float value) { fill(value); }
  void fill(float value) {
    for (std::size_t i = 0; i < small.size(); ++i) small[i] = value + static_cast<float>(i);
    for (std::size_t i = 0; i < large.size(); ++i) large[i] = value * 2 + static_cast<float>(i);
  }
  [[nodiscard]] StateTensors tensors() {
    const auto of = [](std::string name, std::vector<float>& values) {
      const auto rows = static_cast<std::int64_t>(values.size());
      return StateTensor{.name = std::move(name),
                         .global_shape = Shape{rows},
                         .first_row = 0,
                         .rows = rows,
                         .view = TensorView::contiguous(values.data(), DType::f32, Shape{rows})};
    };
    return {of("small", small), of("large", large)};
  }
};

class AgentMemoryTest : public testing::Test {
 protected:
  ~AgentMemoryTest() override { ::close(descriptor_); }
  int descriptor_ = AgentMemory::create().value();
  HostStream stream_;
};

TEST_F(AgentMemoryTest, ASnapshotComesBackBitForBitAndTheOlderOneStays) {
  AgentMemory memory(descriptor_, 0);
  State state(1);
  const auto program = make_keep_program(state.tensors(), {}, memory);
  (void)program->keep(stream_, EpochId{1}, Step{5}, 0);
  state.fill(2);
  const KeptSnapshot kept = program->keep(stream_, EpochId{1}, Step{10}, 1);
  EXPECT_EQ(kept.bytes, kept_bytes(state.tensors()));
  State other(0);
  ASSERT_TRUE(restore_kept(other.tensors(), {}, memory, 1, EpochId{1}, Step{10}));
  EXPECT_EQ(other.large, State(2).large);
  ASSERT_TRUE(restore_kept(other.tensors(), {}, memory, 0, EpochId{1}, Step{5}));
  EXPECT_EQ(other.small, State(1).small);
  EXPECT_EQ(other.large, State(1).large);
}

TEST_F(AgentMemoryTest, OutlivesTheProcessThatWroteItAndOneKilledInTheMiddleOfACopyLeavesTheOther) {
  const pid_t writer = ::fork();
  if (writer == 0) {
    AgentMemory memory(descriptor_, 0);
    State state(3);
    const auto program = make_keep_program(state.tensors(), {}, memory);
    (void)program->keep(stream_, EpochId{2}, Step{8}, 0);
    (void)memory.open(1);  // the copy into the other has begun
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(writer, &status, 0), writer);
  ASSERT_TRUE(WIFSIGNALED(status));
  AgentMemory memory(descriptor_, 0);
  State state(0);
  memory.reserve(kept_bytes(state.tensors()));
  EXPECT_TRUE(restore_kept(state.tensors(), {}, memory, 0, EpochId{2}, Step{8}));
  EXPECT_EQ(state.large, State(3).large);
  const auto torn = restore_kept(state.tensors(), {}, memory, 1, EpochId{2}, Step{9});
  ASSERT_FALSE(torn);
  EXPECT_EQ(torn.error().message, "the snapshot of step 9 (epoch 2, slot 1) in the host agent's memory is not whole");
}

TEST_F(AgentMemoryTest, RefusesAnotherStepAnotherEpochAndAnotherLayout) {
  AgentMemory memory(descriptor_, 0);
  State state(1);
  const auto program = make_keep_program(state.tensors(), {}, memory);
  (void)program->keep(stream_, EpochId{1}, Step{5}, 0);
  EXPECT_NE(restore_kept(state.tensors(), {}, memory, 0, EpochId{1}, Step{6}).error().message.find("the slot holds step 5 of epoch 1"), std::string::npos);
  EXPECT_FALSE(restore_kept(state.tensors(), {}, memory, 0, EpochId{2}, Step{5}));
  StateTensors other = state.tensors();
  other.front().name = "tiny";
  EXPECT_NE(restore_kept(other, {}, memory, 0, EpochId{1}, Step{5}).error().message.find("holds another state"), std::string::npos);
}

TEST_F(AgentMemoryTest, AFlippedBitIsFound) {
  AgentMemory memory(descriptor_, 0);
  State state(1);
  const auto program = make_keep_program(state.tensors(), {}, memory);
  (void)program->keep(stream_, EpochId{1}, Step{5}, 0);
  const char flipped = 1;
  ASSERT_EQ(::pwrite(descriptor_, &flipped, 1, AgentMemory::note_bytes + 4096 + 1001), 1);
  const auto damaged = restore_kept(state.tensors(), {}, memory, 0, EpochId{1}, Step{5});
  ASSERT_FALSE(damaged);
  EXPECT_NE(damaged.error().message.find("is damaged"), std::string::npos) << damaged.error().message;
}

TEST_F(AgentMemoryTest, TheRanksOfOneProcessDoNotMeet) {
  AgentMemory first(descriptor_, 0), second(descriptor_, 1);
  State one(1), two(2);
  const auto keeps_one = make_keep_program(one.tensors(), {}, first), keeps_two = make_keep_program(two.tensors(), {}, second);
  (void)keeps_one->keep(stream_, EpochId{1}, Step{5}, 0);
  (void)keeps_two->keep(stream_, EpochId{1}, Step{5}, 0);
  State back(0);
  ASSERT_TRUE(restore_kept(back.tensors(), {}, first, 0, EpochId{1}, Step{5}));
  EXPECT_EQ(back.large, State(1).large);
  ASSERT_TRUE(restore_kept(back.tensors(), {}, second, 0, EpochId{1}, Step{5}));
  EXPECT_EQ(back.large, State(2).large);
}

}  // namespace
}  // namespace troupe
