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

TEST(RestoreBook, WithCopiesOnOtherHostsASnapshotIsSealedWhenTheseAreThereToo) {
  RestoreBook book(Step{0}, {.keep_every = 1}, true);
  EXPECT_FALSE(keep(book, Step{1}));
  EXPECT_FALSE(book.copied(Step{1}, first, Rank{0}, true));
  EXPECT_FALSE(book.open_keep(Step{2}, first, 2)) << "a copy is still on its way";
  EXPECT_FALSE(book.copied(Step{1}, second, Rank{1}, true)) << "of another epoch";
  EXPECT_EQ(book.newest().place, EpochOrigin::Place::seed);
  EXPECT_TRUE(book.copied(Step{1}, first, Rank{1}, true));
  EXPECT_EQ(book.newest().step, Step{1});
  EXPECT_FALSE(keep(book, Step{2}));
  EXPECT_FALSE(book.copied(Step{2}, first, Rank{0}, false));
  EXPECT_FALSE(book.copied(Step{2}, first, Rank{1}, true)) << "one was not copied";
  EXPECT_EQ(book.newest().step, Step{1});
  EXPECT_TRUE(book.open_keep(Step{3}, first, 2));
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
  (void)book.lost(book.newest());
  EXPECT_EQ(describe(book.newest()), "the checkpoint of step 3");
  (void)book.lost(book.newest());
  EXPECT_EQ(describe(book.newest()), "the snapshot of step 2 in memory");
  EXPECT_TRUE(book.lost(book.newest()));
  EXPECT_EQ(describe(book.newest()), "the seed");
  EXPECT_FALSE(book.lost(book.newest()));
  EXPECT_EQ(describe(book.newest()), "the seed") << "which is always there";
}

TEST(RestoreBook, BehindWhatTheRunBeganWithThereIsNothing) {
  RestoreBook book(Step{30}, 2);
  book.sealed_on_disk(Step{32});
  EXPECT_TRUE(book.lost(book.newest()));
  EXPECT_FALSE(book.lost(book.newest()));
  EXPECT_EQ(describe(book.newest()), "the checkpoint of step 30");
}

TEST(RestoreBook, SaysInWhichEpochTheOldestOfTwoSnapshotsWasKept) {
  RestoreBook book(Step{0}, 2);
  ASSERT_TRUE(keep(book, Step{2}));
  EXPECT_FALSE(book.oldest_epoch_kept());
  ASSERT_TRUE(keep(book, Step{4}, second));
  EXPECT_EQ(book.oldest_epoch_kept(), first);
  ASSERT_TRUE(keep(book, Step{6}, second));
  EXPECT_EQ(book.oldest_epoch_kept(), second);
}

TEST(RestoreBook, AnEpochThatBeginsEarlierForgetsWhatWasCopiedAfter) {
  RestoreBook book(Step{0}, 2);
  ASSERT_TRUE(keep(book, Step{2}));
  ASSERT_TRUE(keep(book, Step{4}));
  const EpochOrigin spoilt = book.newest();
  (void)book.lost(spoilt);
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

constexpr SnapshotPolicy with_rollbacks{.keep_every = 2, .rollback_steps = 3, .run_ahead = 2};

TEST(RestoreBook, ARollbackStandsForTheStepThatItWasTakenAfterUntilThereIsANewerPoint) {
  RestoreBook book(Step{0}, with_rollbacks);
  for (const std::uint64_t step : {2U, 4U, 6U}) ASSERT_TRUE(keep(book, Step{step}));
  const EpochOrigin back = book.way_back(Step{5}, 3);
  EXPECT_EQ(back.step, Step{2});
  book.go_back_to(back, Step{5});
  EXPECT_EQ(book.newest(), back) << "later snapshots are of a past that training has left";
  EXPECT_EQ(book.goes_on_after(back), Step{5});
  ASSERT_TRUE(keep(book, Step{8}));
  EXPECT_EQ(book.newest().step, Step{8});
  EXPECT_EQ(book.goes_on_after(book.newest()), Step{8});
  EXPECT_EQ(book.way_back(Step{10}, 3), back) << "the snapshot of step 8 is too young, and this one stands for step 5";
  (void)book.lost(book.newest());
  EXPECT_EQ(book.goes_on_after(book.newest()), Step{5});
}

TEST(RestoreBook, HoldsWhateverARollbackMayNeedWhicheverStepIsTold) {
  for (std::uint32_t every = 1; every <= 5; ++every)
    for (std::uint32_t back = 1; back <= 6; ++back) {
      const SnapshotPolicy policy{.keep_every = every, .rollback_steps = back, .run_ahead = 2};
      RestoreBook book(Step{0}, policy);
      std::uint64_t granted = 0;
      for (std::uint64_t told = 1; told < 60; ++told) {
        for (; granted < told + policy.run_ahead; ++granted)
          if ((granted + 1) % every == 0) {
            ASSERT_TRUE(keep(book, Step{granted + 1}));
          }
        const std::uint64_t old_enough = told > back ? (told - back) / every * every : 0;
        ASSERT_EQ(book.way_back(Step{told}, back).step, Step{old_enough}) << "every " << every << ", back " << back << ", told " << told;
      }
    }
}

TEST(RestoreBook, WithRollbacksAStepOfASnapshotWaitsForTheCopyBefore) {
  RestoreBook book(Step{0}, with_rollbacks);
  EXPECT_EQ(book.may_grant_until(Step{0}), Step{3}) << "one snapshot, of step 2";
  ASSERT_TRUE(book.open_keep(Step{2}, first, 1));
  EXPECT_EQ(book.may_grant_until(Step{3}), Step{3});
  (void)book.reported(Step{2});
  ASSERT_TRUE(book.kept(Step{2}, Rank{0}, true));
  EXPECT_EQ(book.may_grant_until(Step{3}), Step{5});
}

TEST(RestoreBook, WithoutASnapshotSoOldARollbackLeadsToWhereTheRunBegan) {
  RestoreBook book(Step{0}, 0);
  EXPECT_TRUE(book.sealed_on_disk(Step{10}));
  const EpochOrigin back = book.way_back(Step{12}, 15);
  EXPECT_EQ(back.place, EpochOrigin::Place::seed);
  book.go_back_to(back, Step{12});
  EXPECT_FALSE(book.sealed_on_disk(Step{12}));
  EXPECT_EQ(book.newest(), back) << "what is sealed late is of a past that training has left";
  EXPECT_EQ(book.goes_on_after(book.newest()), Step{12});
}

TEST(RestoreBook, ALostSnapshotDoesNotSendARollbackToTheBeginningOfALongRun) {
  RestoreBook book(Step{0}, with_rollbacks);
  for (std::uint64_t step = 2; step <= 100; step += 2) ASSERT_TRUE(keep(book, Step{step}));
  (void)book.lost(book.way_back(Step{99}, 3));
  EXPECT_EQ(book.way_back(Step{99}, 3).step, Step{94}) << "one older is held still";
  (void)book.lost(book.way_back(Step{99}, 3));
  EXPECT_EQ(book.way_back(Step{99}, 3).step, Step{98});
}

}  // namespace
}  // namespace troupe
