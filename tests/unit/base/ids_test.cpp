#include "src/base/ids.hpp"

#include <gtest/gtest.h>

#include <type_traits>
#include <unordered_set>

namespace troupe {
namespace {

TEST(Ids, OfDifferentKindsDoNotMix) {
  static_assert(!std::is_convertible_v<Rank, Step>);
  static_assert(!std::is_convertible_v<int, Rank>);
  static_assert(!std::is_convertible_v<Rank, std::uint32_t>);
  static_assert(sizeof(Step) == 8 && sizeof(EpochId) == 8, "steps and epochs are counted in 64 bits");
}

TEST(Ids, CountUpAndCompare) {
  Step step{6};
  EXPECT_EQ(step.next(), Step{7});
  EXPECT_EQ(++step, Step{7});
  EXPECT_LT(Step{7}, Step{8});
  EXPECT_EQ(Rank{}.value(), 0U);
}

TEST(Ids, AreKeysOfHashTables) {
  const std::unordered_set<Rank> ranks{Rank{1}, Rank{2}, Rank{1}};
  EXPECT_EQ(ranks.size(), 2U);
}

TEST(Where, IsOrderedByEpochThenStepThenMicroBatchThenUnit) {
  const Where earlier{EpochId{1}, Step{9}, Micro{9}, Unit{9}};
  const Where later{EpochId{2}, Step{1}, Micro{0}, Unit{0}};
  EXPECT_LT(earlier, later);
  EXPECT_LT((Where{EpochId{1}, Step{9}, Micro{0}, Unit{9}}), earlier);
  EXPECT_LT((Where{EpochId{1}, Step{9}, Micro{9}, Unit{8}}), earlier);
}

}  // namespace
}  // namespace troupe
