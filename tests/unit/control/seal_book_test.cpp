#include "actors/seal_book.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

TEST(SealBook, CompletesACheckpointOnceAllPartsAndTheStepsReportAreThere) {
  SealBook book(EpochId{3}, 2);
  book.add(Step{5}, {.rank = Rank{1}, .file = "b", .bytes = 2, .hash = 2, .problem = {}});
  book.add(Step{5}, {.rank = Rank{1}, .file = "b again", .bytes = 2, .hash = 2, .problem = {}});
  book.reported(Step{5}, 99);
  EXPECT_FALSE(book.take().has_value()) << "one part told twice is one part";
  book.add(Step{5}, {.rank = Rank{0}, .file = "a", .bytes = 1, .hash = 1, .problem = {}});
  const auto parts = book.take();
  ASSERT_TRUE(parts.has_value());
  EXPECT_EQ(parts->epoch, EpochId{3});
  EXPECT_EQ(parts->total_tokens, 99U);
  ASSERT_EQ(parts->shards.size(), 2U);
  EXPECT_EQ(parts->shards[0].file, "a");
  EXPECT_EQ(parts->shards[1].file, "b");
  EXPECT_EQ(parts->problem(), "");
  EXPECT_FALSE(book.take().has_value());
}

TEST(SealBook, WaitsForTheReportAndNamesTheRankThatCouldNotWrite) {
  SealBook book(EpochId{1}, 1);
  book.add(Step{2}, {.rank = Rank{0}, .file = {}, .bytes = 0, .hash = 0, .problem = "no space left"});
  EXPECT_FALSE(book.take().has_value());
  book.reported(Step{2}, 1);
  EXPECT_EQ(book.take()->problem(), "rank 0: no space left");
}

}  // namespace
}  // namespace troupe
