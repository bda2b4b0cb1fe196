#include "src/base/lease.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

namespace troupe {
namespace {

TEST(Lease, IsEmptyByItself) {
  const Lease lease;
  EXPECT_FALSE(lease);
}

TEST(Lease, ShowsItsSlotAndMemory) {
  std::array<std::byte, 16> memory{};
  const Lease lease(SlotIndex{3}, memory, [] {});
  EXPECT_TRUE(lease);
  EXPECT_EQ(lease.slot(), SlotIndex{3});
  EXPECT_EQ(lease.bytes().data(), memory.data());
  EXPECT_EQ(lease.bytes().size(), memory.size());
}

TEST(Lease, IsReleasedOnceByTheLastHolder) {
  int released = 0;
  Lease first(SlotIndex{0}, {}, [&] { ++released; });
  Lease second = first;
  Lease third = std::move(first);
  second.reset();
  EXPECT_EQ(released, 0);
  third = Lease{};
  EXPECT_EQ(released, 1);
}

TEST(Lease, IsReleasedOnceWhateverTheThreadOfTheLastHolder) {
  std::atomic<int> released = 0;
  for (int round = 0; round < 50; ++round) {
    Lease lease(SlotIndex{0}, {}, [&] { ++released; });
    std::vector<std::jthread> holders;
    for (int i = 0; i < 4; ++i) holders.emplace_back([copy = lease]() mutable { copy.reset(); });
    lease.reset();
  }
  EXPECT_EQ(released, 50);
}

TEST(Lease, WithoutAReleaseFunctionGoesQuietly) {
  Lease lease(SlotIndex{1}, {}, nullptr);
  lease.reset();
  EXPECT_FALSE(lease);
}

}  // namespace
}  // namespace troupe
