#include "src/transport/store_choice.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

/// Writes blocks where they take so long either way. How many of them went through the cache.
int through_cache(StoreChoice& choice, int blocks, Nanos through, Nanos beside) {
  int count = 0;
  for (int i = 0; i < blocks; ++i) {
    const auto block = choice.next();
    const bool cached = block.stores == Stores::through_cache;
    count += cached ? 1 : 0;
    if (block.timed) choice.took(block.stores, cached ? through : beside);
  }
  return count;
}

constexpr int some = 10 * static_cast<int>(StoreChoice::between);
constexpr Nanos quick{1000}, slow{5000};

TEST(StoreChoice, GoesThroughACacheThatBothShare) {
  StoreChoice choice;
  EXPECT_GE(through_cache(choice, some, quick, quick), some - 12);
  EXPECT_GE(through_cache(choice, some, quick * 4 / 3, quick), some - 12) << "a little slower for the writer, which the reader more than makes up for";
}

TEST(StoreChoice, GoesBesideTheCacheWhereLinesAreWaitedFor) {
  StoreChoice choice;
  EXPECT_LE(through_cache(choice, some, slow, quick), 12) << "but for the block in so many that looks whether it is still so";
}

TEST(StoreChoice, FollowsAProcessThatIsMoved) {
  StoreChoice choice;
  through_cache(choice, some, quick, quick);
  EXPECT_LE(through_cache(choice, some, slow, quick), some / 2);
  EXPECT_LE(through_cache(choice, some, slow, quick), 12);
  EXPECT_GE(through_cache(choice, some, quick, quick), some - static_cast<int>(StoreChoice::between) - 12);
}

TEST(StoreChoice, IsNotMisledByAnInterruption) {
  StoreChoice choice;
  through_cache(choice, some, quick, quick);
  for (int i = 0; i < 3; ++i) choice.took(Stores::through_cache, std::chrono::milliseconds(4));
  EXPECT_GE(through_cache(choice, some, quick, quick), some - 12);
}

}  // namespace
}  // namespace troupe
