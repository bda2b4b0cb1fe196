#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "tests/collectives/members.hpp"

// A program of its own: UCX does not survive a fork, so nothing of this process uses it.
namespace troupe::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ProcessesOverUcx, EndWithTheBitsOfProcessesOverSharedMemory) {
  Setting setting;
  setting.chunk_bytes = 1 << 14;
  for (const std::uint32_t size : {2U, 3U}) {
    const auto expected = run(Kind::processes, size, train_a_little);
    ASSERT_EQ(expected[0].error, "");
    for (const auto& member : run(Kind::ucx_processes, size, train_a_little, setting)) {
      EXPECT_EQ(member.error, "");
      EXPECT_TRUE(member.bytes == expected[0].bytes);
    }
  }
}

TEST(ProcessesOverUcx, AKilledMemberIsNamedToTheOthersWithoutATimeout) {
  const auto members = run(Kind::ucx_processes, 3, [](Communicator& group) {
    std::vector<std::byte> result = train_a_little(group);
    if (group.rank() == 1) kill(getpid(), SIGKILL);
    for (;;) result = train_a_little(group);
    return result;
  });
  for (const auto* survivor : {&members[0], &members[2]}) EXPECT_THAT(survivor->error, AllOf(HasSubstr("rank 1"), Not(HasSubstr("within"))));
  EXPECT_TRUE(members[1].died);
}

}  // namespace
}  // namespace troupe::testing
