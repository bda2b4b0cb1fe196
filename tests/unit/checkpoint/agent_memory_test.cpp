#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <tuple>
#include <vector>

#include "src/checkpoint/kept_state.hpp"

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

TEST_F(AgentMemoryTest, SaysWhatStandsWholeInItsOwnRegion) {
  AgentMemory memory(descriptor_, 3), other(descriptor_, 1);
  State state(1);
  const auto program = make_keep_program(state.tensors(), {}, memory);
  EXPECT_TRUE(memory.whole().empty());
  (void)program->keep(stream_, EpochId{2}, Step{5}, 1);
  ASSERT_EQ(memory.whole().size(), 1U);
  EXPECT_EQ(memory.whole()[0].slot, 1U);
  EXPECT_EQ(memory.whole()[0].step, Step{5});
  EXPECT_TRUE(other.whole().empty());
  EXPECT_TRUE(memory.own(1, EpochId{2}, Step{5}).ok());
  EXPECT_FALSE(memory.own(1, EpochId{1}, Step{5}).ok());
  EXPECT_FALSE(other.own(1, EpochId{2}, Step{5}).ok()) << "another rank's";
  (void)memory.open(1);
  EXPECT_TRUE(memory.whole().empty()) << "it is being written";
}

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
  EXPECT_NE(restore_kept(other, {}, memory, 0, EpochId{1}, Step{5}).error().message.find("lacks tensor 'tiny'"), std::string::npos);
  EXPECT_FALSE(*restore_kept(other, {}, memory, 0, EpochId{1}, Step{5}, "ti")) << "it may lack this one";
}

TEST_F(AgentMemoryTest, AFlippedBitIsFound) {
  AgentMemory memory(descriptor_, 0);
  State state(1);
  const auto program = make_keep_program(state.tensors(), {}, memory);
  (void)program->keep(stream_, EpochId{1}, Step{5}, 0);
  const char flipped = 1;
  ASSERT_EQ(::pwrite(descriptor_, &flipped, 1, (off_t{1} << 39) + 4096 + 100001), 1);
  const auto damaged = restore_kept(state.tensors(), {}, memory, 0, EpochId{1}, Step{5});
  ASSERT_FALSE(damaged);
  EXPECT_NE(damaged.error().message.find("is damaged"), std::string::npos) << damaged.error().message;
}

/// Where this value lies in the own snapshot.
off_t last_value_of(const AgentMemory& memory, float value) {
  const auto kept = memory.find(0, EpochId{1}, Step{5});
  const auto bytes = kept->front().bytes();
  for (std::size_t at = 0; at + sizeof value <= bytes.size(); at += sizeof value) {
    float there = 0;
    std::memcpy(&there, bytes.data() + at, sizeof there);
    if (there == value) return static_cast<off_t>(at);
  }
  return -1;
}

/// One tensor of 10 rows of 3, dealt to ranks, and one that every rank holds.
struct Dealt {
  std::vector<float> rows, everywhere = std::vector<float>(2);
  std::int64_t first;
  Dealt(std::int64_t from, std::int64_t count, bool filled) : rows(static_cast<std::size_t>(count) * 3), first(from) {
    for (std::size_t i = 0; filled && i < rows.size(); ++i) rows[i] = static_cast<float>(from * 3) + static_cast<float>(i);
    if (filled) everywhere = {7, 8};
  }
  [[nodiscard]] StateTensors tensors() {
    const auto count = static_cast<std::int64_t>(rows.size() / 3);
    return {{.name = "dealt",
             .global_shape = Shape{10, 3},
             .first_row = first,
             .rows = count,
             .view = TensorView::contiguous(rows.data(), DType::f32, Shape{count, 3})},
            {.name = "everywhere",
             .global_shape = Shape{2},
             .rows = 2,
             .view = TensorView::contiguous(everywhere.data(), DType::f32, Shape{2}),
             .replicated = true}};
  }
};

TEST_F(AgentMemoryTest, AnotherNumberOfRanksGoesOnFromWhatTheRanksBeforeHaveLeft) {
  for (const auto& [place, first, count] : {std::tuple{0U, 0, 4}, {1U, 4, 4}, {3U, 8, 2}}) {
    AgentMemory memory(descriptor_, place);
    Dealt part(first, count, true);
    (void)make_keep_program(part.tensors(), {}, memory)->keep(stream_, EpochId{3}, Step{5}, 1);
  }
  for (const auto& [place, first, count] : {std::tuple{0U, 0, 5}, {1U, 5, 5}, {6U, 2, 8}}) {
    AgentMemory memory(descriptor_, place);
    Dealt part(first, count, false);
    ASSERT_TRUE(restore_kept(part.tensors(), {}, memory, 1, EpochId{3}, Step{5})) << "rank " << place;
    EXPECT_EQ(part.rows, Dealt(first, count, true).rows) << "rank " << place;
    EXPECT_EQ(part.everywhere[1], 8);
    std::vector<float> uploaded(part.rows.size());
    const KeepOptions device{.copy_out = {}, .copy_in = [&](const std::byte* from, const TensorView& to) {
                               if (to.shape.rank == 2) std::memcpy(uploaded.data(), from, uploaded.size() * sizeof(float));
                             }};
    ASSERT_TRUE(restore_kept(part.tensors(), device, memory, 1, EpochId{3}, Step{5}));
    EXPECT_EQ(uploaded, part.rows);
  }
}

TEST_F(AgentMemoryTest, ALargerStateOfTheNextEpochLeavesTheSnapshotThatItBeganFrom) {
  Dealt small(0, 10, true);
  {
    AgentMemory memory(descriptor_, 0);
    (void)make_keep_program(small.tensors(), {}, memory)->keep(stream_, EpochId{1}, Step{5}, 0);
  }
  AgentMemory memory(descriptor_, 0);
  State large(1);
  const auto program = make_keep_program(large.tensors(), {}, memory);  // reserves more
  (void)program->keep(stream_, EpochId{2}, Step{6}, 1);
  Dealt back(0, 10, false);
  ASSERT_TRUE(restore_kept(back.tensors(), {}, memory, 0, EpochId{1}, Step{5}));
  EXPECT_EQ(back.rows, small.rows);
}

TEST_F(AgentMemoryTest, OfReplicasADamagedOneIsPassedOverAndMissingRowsAreNamed) {
  for (const std::uint32_t place : {0U, 1U}) {
    AgentMemory memory(descriptor_, place);
    Dealt part(0, 9, true);
    (void)make_keep_program(part.tensors(), {}, memory)->keep(stream_, EpochId{1}, Step{5}, 0);
  }
  AgentMemory memory(descriptor_, 0);
  const float damaged = 99;  // the last row's last value: behind the table, its hashes and 8 rows
  ASSERT_EQ(::pwrite(descriptor_, &damaged, sizeof damaged, (off_t{1} << 39) + 4096 + last_value_of(memory, 26)), static_cast<ssize_t>(sizeof damaged));
  Dealt part(0, 9, false);
  ASSERT_TRUE(restore_kept(part.tensors(), {}, memory, 0, EpochId{1}, Step{5}));
  EXPECT_EQ(part.rows, Dealt(0, 9, true).rows) << "the other rank's";
  Dealt more(4, 6, false);
  const auto lacking = restore_kept(more.tensors(), {}, memory, 0, EpochId{1}, Step{5});
  ASSERT_FALSE(lacking);
  EXPECT_NE(lacking.error().message.find("has no rows of tensor 'dealt', row 9"), std::string::npos) << lacking.error().message;
}

/// Bytes that the system has given to the memory.
std::uint64_t taken(int descriptor) {
  struct stat found {};
  EXPECT_EQ(::fstat(descriptor, &found), 0);
  return static_cast<std::uint64_t>(found.st_blocks) * 512;
}

TEST_F(AgentMemoryTest, OneSlotIsTakenWithoutThoseBelowIt) {
  constexpr std::uint64_t bytes = std::uint64_t{4} << 20U;
  AgentMemory memory(descriptor_, 2);
  memory.reserve_one(bytes, 3);
  EXPECT_GE(taken(descriptor_), bytes);
  EXPECT_LT(taken(descriptor_), bytes * 3 / 2);
  memory.open(3)[bytes - 1] = std::byte{1};
  memory.seal(3, EpochId{1}, Step{5}, bytes);
  ASSERT_EQ(memory.whole().size(), 1U);
  EXPECT_EQ(memory.whole()[0].slot, 3U);
  EXPECT_THROW(memory.reserve_one(bytes, AgentMemory::most_slots), std::runtime_error);
}

TEST_F(AgentMemoryTest, ForgettingGivesBackWhatIsOldAndWhatIsNotWhole) {
  constexpr std::uint64_t bytes = std::uint64_t{4} << 20U;
  {
    AgentMemory memory(descriptor_, 2);
    memory.reserve(bytes, 4);
    for (const std::uint32_t slot : {0U, 1U, 3U}) (void)memory.open(slot);
    memory.seal(0, EpochId{1}, Step{5}, bytes);
    memory.seal(3, EpochId{2}, Step{7}, bytes);
  }
  EXPECT_GE(taken(descriptor_), 4 * bytes);
  const AgentMemory memory(descriptor_, 2);
  memory.forget(EpochId{2});
  EXPECT_LT(taken(descriptor_), bytes * 3 / 2);
  ASSERT_EQ(memory.whole().size(), 1U);
  EXPECT_EQ(memory.whole()[0].slot, 3U);
}

TEST_F(AgentMemoryTest, TwoRanksDoNotMeet) {
  AgentMemory first(descriptor_, 0), second(descriptor_, 1);  // they are two regions
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
