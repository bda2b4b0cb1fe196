#include "actors/restore_book.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

constexpr EpochId first{1}, second{2};

/// Two ranks copy the state after this step, and tell it.
bool keep(RestoreBook& book, Step step, EpochId epoch = first) {
  if (!book.open_keep(step, epoch, 2)) return false;
  (void)book.reported(step);
  (void)book.kept(step, Rank{0}, true);
  return book.kept(step, Rank{1}, true);
}

TEST(RestoreBook, BeginsWithWhatTheRunBeganWith) {
  EXPECT_EQ(RestoreBook(Step{0}, 4).newest().place, EpochOrigin::Place::seed);
  const EpochOrigin resumed = RestoreBook(Step{30}, 4).newest();
  EXPECT_EQ(resumed.place, EpochOrigin::Place::disk);
  EXPECT_EQ(resumed.step, Step{30});
}

TEST(RestoreBook, CopiesEveryFewStepsIntoTheSlotThatDoesNotHoldTheNewest) {
  RestoreBook book(Step{0}, 2);
  EXPECT_FALSE(book.open_keep(Step{1}, first, 2));
  EXPECT_TRUE(keep(book, Step{2}));
  const EpochOrigin older = book.newest();
  EXPECT_EQ(older, (EpochOrigin{EpochOrigin::Place::memory, Step{2}, first, 0}));
  EXPECT_TRUE(keep(book, Step{4}));
  EXPECT_EQ(book.newest().slot, 1U);
  EXPECT_EQ(book.open_keep(Step{6}, first, 2), 0U);
  EXPECT_EQ(book.newest().step, Step{4}) << "the open copy counts only when it is sealed";
}

TEST(RestoreBook, ASnapshotIsSealedWhenAllPartsAndTheReportAreThere) {
  RestoreBook book(Step{0}, 1);
  ASSERT_TRUE(book.open_keep(Step{1}, first, 2));
  EXPECT_FALSE(book.kept(Step{1}, Rank{0}, true));
  EXPECT_FALSE(book.kept(Step{1}, Rank{0}, true)) << "a part told twice counts once";
  EXPECT_FALSE(book.kept(Step{1}, Rank{1}, true));
  EXPECT_EQ(book.newest().step, Step{0});
  EXPECT_TRUE(book.reported(Step{1}));
  EXPECT_EQ(book.newest().step, Step{1});
}

TEST(RestoreBook, NoCopyBeginsWhileOneIsOpenAndTheDueOneIsMadeUpFor) {
  RestoreBook book(Step{0}, 2);
  ASSERT_TRUE(book.open_keep(Step{2}, first, 2));
  EXPECT_FALSE(book.open_keep(Step{4}, first, 2));
  (void)book.reported(Step{2});
  (void)book.kept(Step{2}, Rank{0}, true);
  ASSERT_TRUE(book.kept(Step{2}, Rank{1}, true));
  EXPECT_TRUE(book.open_keep(Step{5}, first, 2));
}

TEST(RestoreBook, APartThatFailedLeavesTheOneBefore) {
  RestoreBook book(Step{0}, 1);
  ASSERT_TRUE(keep(book, Step{1}));
  ASSERT_TRUE(book.open_keep(Step{2}, first, 2));
  (void)book.reported(Step{2});
  (void)book.kept(Step{2}, Rank{0}, false);
  EXPECT_FALSE(book.kept(Step{2}, Rank{1}, true));
  EXPECT_EQ(book.newest().step, Step{1});
  EXPECT_TRUE(book.open_keep(Step{3}, first, 2)) << "the next tries again";
}

TEST(RestoreBook, AFaultGivesUpTheOpenCopyAndItsSlotIsWrittenNext) {
  RestoreBook book(Step{0}, 1);
  ASSERT_TRUE(keep(book, Step{1}));
  ASSERT_EQ(book.open_keep(Step{2}, first, 2), 1U);
  book.epoch_ended();
  EXPECT_EQ(book.newest().step, Step{1});
  book.epoch_begins(book.newest());
  EXPECT_FALSE(book.kept(Step{2}, Rank{0}, true)) << "a late letter of the ended epoch";
  EXPECT_EQ(book.open_keep(Step{2}, second, 2), 1U);
}

TEST(RestoreBook, WhatCannotBeReadIsPassedOverForWhatIsOlder) {
  RestoreBook book(Step{0}, 2);
  ASSERT_TRUE(keep(book, Step{2}));
  ASSERT_TRUE(keep(book, Step{4}));
  book.sealed_on_disk(Step{3});
  book.lost(book.newest());
  EXPECT_EQ(describe(book.newest()), "the checkpoint of step 3");
  book.lost(book.newest());
  EXPECT_EQ(describe(book.newest()), "the snapshot of step 2 in memory");
  book.lost(book.newest());
  EXPECT_EQ(describe(book.newest()), "the seed");
  book.lost(book.newest());
  EXPECT_EQ(describe(book.newest()), "the seed") << "which is always there";
}

TEST(RestoreBook, AnEpochThatBeginsEarlierForgetsWhatWasCopiedAfter) {
  RestoreBook book(Step{0}, 2);
  ASSERT_TRUE(keep(book, Step{2}));
  ASSERT_TRUE(keep(book, Step{4}));
  const EpochOrigin spoilt = book.newest();
  book.lost(spoilt);
  book.epoch_begins(book.newest());
  EXPECT_EQ(book.newest().step, Step{2});
  ASSERT_TRUE(keep(book, Step{4}, second));
  EXPECT_EQ(book.newest().epoch, second) << "the same step again, of the epoch that counts";
}

TEST(RestoreBook, ACheckpointOnDiskIsGoneBackToWhenItIsNewer) {
  RestoreBook book(Step{0}, 0);
  EXPECT_FALSE(book.open_keep(Step{2}, first, 2)) << "no memory, no copies";
  book.sealed_on_disk(Step{20});
  EXPECT_EQ(book.newest().place, EpochOrigin::Place::disk);
  EXPECT_EQ(book.newest().step, Step{20});
}

}  // namespace
}  // namespace troupe
