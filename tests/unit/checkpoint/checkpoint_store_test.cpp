#include "src/checkpoint/checkpoint_store.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/support/temporary_folder.hpp"
#include "tests/unit/checkpoint/checkpoint_world.hpp"

namespace troupe {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Killed;
using testing::MemoryStorage;
using testing::World;

using testing::folder;
using testing::loaded_step;
using testing::names_in;

// B084: whatever the moment of death, the newest sealed checkpoint loads and holds exactly its step.
TEST(CheckpointStore, KilledAtAnyOperationASealedCheckpointLoads) {
  for (const auto loss : {MemoryStorage::Loss::nothing, MemoryStorage::Loss::unsynced}) {
    bool finished = false;
    std::uint64_t kills = 0, sealed_later = 0;
    for (; !finished; ++kills) {
      MemoryStorage storage;
      World world(2, storage, folder);
      world.save(10);
      ASSERT_TRUE(storage.sync_folder("/"));  // the run's folder is there
      storage.kill_at(kills);
      try {
        world.save(20);
        ASSERT_TRUE(world.store.purge(2));
        finished = true;
      } catch (const Killed&) {
        finished = false;
      }
      storage.restart(loss);
      const auto step = loaded_step(storage, 3);
      ASSERT_TRUE(step == 10 || step == 20) << "killed at operation " << kills;
      sealed_later += step == 20 ? 1 : 0;
      EXPECT_TRUE(!finished || step == 20U);
      ASSERT_TRUE(CheckpointStore(folder, storage).clean());
      for (const auto& name : names_in(storage)) EXPECT_THAT(name, ::testing::AnyOf("step-10", "step-20"));
    }
    EXPECT_GT(kills, 10U);
    EXPECT_GE(sealed_later, 1U);
  }
}

TEST(CheckpointStore, TellsHowFarACheckIsUpToItsEnd) {
  MemoryStorage storage;
  World world(3, storage, folder);
  world.save(10);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> told;
  world.store.watch([&](Step step, std::uint64_t done, std::uint64_t total) {
    EXPECT_EQ(step, Step{10});
    EXPECT_TRUE(told.empty() || done >= told.back().first);
    told.emplace_back(done, total);
  });
  std::vector<std::string> warnings;
  ASSERT_TRUE(world.store.find(-1, true, warnings));
  ASSERT_FALSE(told.empty());
  EXPECT_EQ(told.back().first, told.back().second);
  EXPECT_GE(told.back().second, 3 * (std::uint64_t{4} << 20U)) << "a piece of each rank at least";
  told.clear();
  ASSERT_TRUE(world.store.find(-1, false, warnings));
  EXPECT_TRUE(told.empty()) << "nothing is read";
}

TEST(CheckpointStore, KilledWhileReplacingTheSameStepAnOldOrTheNewOneLoads) {
  bool finished = false;
  for (std::uint64_t kills = 0; !finished; ++kills) {
    MemoryStorage storage;
    World world(2, storage, folder);
    world.save(10);
    storage.kill_at(kills);
    try {
      world.save(10, false, 2);
      finished = true;
    } catch (const Killed&) {
      finished = false;
    }
    storage.restart(MemoryStorage::Loss::nothing);
    ASSERT_TRUE(CheckpointStore(folder, storage).clean());
    ASSERT_EQ(loaded_step(storage, 2), 10U) << "killed at operation " << kills;
    EXPECT_THAT(names_in(storage), ElementsAre("step-10"));
  }
}

TEST(CheckpointStore, KilledAtAnyOperationOfAPurgeTheNewestStays) {
  bool finished = false;
  for (std::uint64_t kills = 0; !finished; ++kills) {
    MemoryStorage storage;
    World world(2, storage, folder);
    for (const std::uint64_t step : {10U, 20U, 30U, 40U}) world.save(step);
    storage.kill_at(kills);
    try {
      ASSERT_TRUE(world.store.purge(2));
      finished = true;
    } catch (const Killed&) {
      finished = false;
    }
    storage.restart(MemoryStorage::Loss::nothing);
    ASSERT_EQ(loaded_step(storage, 2), 40U);
    const auto steps = *world.store.steps();
    for (const auto step : steps)
      EXPECT_TRUE(world.store.find(static_cast<std::int64_t>(step.value()), true, *std::make_unique<std::vector<std::string>>())) << "half-deleted";
  }
}

TEST(CheckpointStore, AFailureAtAnyOperationKeepsTheOlderAndLeavesNothingAfterGivingUp) {
  bool finished = false;
  for (std::uint64_t n = 0; !finished; ++n) {
    MemoryStorage storage;
    World world(2, storage, folder);
    world.save(10);
    storage.fail_at(n);
    std::string problem;
    try {
      world.save(20);
    } catch (const std::runtime_error& error) {
      problem = error.what();
    }
    finished = storage.operations() < n;
    if (problem.empty()) continue;
    EXPECT_THAT(problem, HasSubstr("Input/output error"));
    ASSERT_TRUE(world.store.give_up(Step{20}, EpochId{1}));
    const auto step = loaded_step(storage, 2);
    EXPECT_TRUE(step == 10 || step == 20);
    EXPECT_TRUE(step == 20 || names_in(storage) == std::vector<std::string>{"step-10"});
    world.save(30);
    EXPECT_EQ(loaded_step(storage, 2), 30U) << "the next interval succeeds";
  }
}

TEST(CheckpointStore, AFullDiskIsToldWithPathAndSpaceAndTheOlderStays) {
  MemoryStorage storage;
  World world(2, storage, folder);
  world.save(10);
  const auto before = storage.used_bytes();
  storage.set_capacity(before + before / 3);
  try {
    world.save(20);
    FAIL() << "the disk is full, yet the save went through";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("step-20.tmp-1/rank-0000"), HasSubstr("No space left on device"), HasSubstr("MiB free, this rank's part takes")));
  }
  ASSERT_TRUE(world.store.give_up(Step{20}, EpochId{1}));
  EXPECT_EQ(storage.used_bytes(), before);
  EXPECT_EQ(loaded_step(storage, 2), 10U);
  storage.set_capacity(before * 3);
  world.save(30);
  EXPECT_EQ(loaded_step(storage, 2), 30U);
}

TEST(CheckpointStore, WhatFailedSavesLeaveGoesWithTheNextSealedOne) {
  MemoryStorage storage;
  World world(2, storage, folder);
  storage.set_capacity(7000);  // one shard fits, the second does not
  EXPECT_THROW(world.save(10), std::runtime_error);
  const auto left = storage.list(folder / "step-10.tmp-1");
  ASSERT_TRUE(left);
  EXPECT_EQ(left->size(), 1U) << "the rank that failed removed its own file";
  storage.set_capacity(1U << 20U);
  storage.put(folder / "step-30.tmp-1" / "x", "a later save that runs");
  world.save(20);
  EXPECT_THAT(names_in(storage), ElementsAre("step-20", "step-30.tmp-1"));
}

// B085
TEST(CheckpointStore, DamagedFoldersArePassedOverWithAWarning) {
  const auto with_30 = [](const std::function<void(MemoryStorage&)>& damage) {
    MemoryStorage storage;
    World world(2, storage, folder);
    for (const std::uint64_t step : {10U, 20U, 30U}) world.save(step);
    damage(storage);
    std::vector<std::string> warnings;
    const auto found = world.store.find(-1, true, warnings);
    EXPECT_TRUE(found && *found);
    EXPECT_EQ((*found)->manifest.position.step, Step{20});
    return warnings.empty() ? std::string("no warning") : warnings.front();
  };
  const std::string shard = "rank-00001-of-00002.safetensors";
  EXPECT_THAT(with_30([](MemoryStorage& s) {
                (void)s.remove(folder / "step-30");
                (void)s.make_folders(folder / "step-30");
              }),
              HasSubstr("step 30 cannot be used: cannot open"));
  EXPECT_THAT(with_30([](MemoryStorage& s) { (void)s.remove(folder / "step-30" / "manifest.json"); }), HasSubstr("manifest.json"));
  EXPECT_THAT(with_30([&](MemoryStorage& s) {
                auto text = s.content(folder / "step-30" / shard);
                text.pop_back();
                s.put(folder / "step-30" / shard, text);
              }),
              HasSubstr("bytes, expected"));
  EXPECT_THAT(with_30([&](MemoryStorage& s) { (void)s.remove(folder / "step-30" / shard); }), HasSubstr(shard + ": No such file"));
  EXPECT_THAT(with_30([&](MemoryStorage& s) {
                auto text = s.content(folder / "step-30" / shard);
                text[text.size() - 10] ^= 1;
                s.put(folder / "step-30" / shard, text);
              }),
              HasSubstr(shard + ": the checksum of bytes 4096 to "));
  EXPECT_THAT(with_30([&](MemoryStorage& s) {
                auto text = s.content(folder / "step-30" / shard);
                text[1000] ^= 1;
                s.put(folder / "step-30" / shard, text);
              }),
              HasSubstr(shard + ": the checksum of its header does not match"));
}

// B097
TEST(CheckpointStore, WhenNoneOfTheCheckpointsIsGoodTheRunStops) {
  MemoryStorage storage;
  World world(2, storage, folder);
  std::vector<std::string> warnings;
  auto found = world.store.find(-1, true, warnings);
  EXPECT_TRUE(found && !*found) << "no checkpoint at all is no error";
  world.save(10);
  (void)storage.remove(folder / "step-10" / "manifest.json");
  found = world.store.find(-1, true, warnings);
  ASSERT_FALSE(found);
  EXPECT_THAT(found.error().message,
              AllOf(HasSubstr("none of the checkpoints in /run/checkpoint (steps 10) can be used"), HasSubstr("Move them away to start from the beginning")));
}

// B086
TEST(CheckpointStore, AnExplicitStepThatIsNotThereIsAnErrorWithTheStepsThatAre) {
  MemoryStorage storage;
  World world(1, storage, folder);
  std::vector<std::string> warnings;
  EXPECT_EQ(world.store.find(10, true, warnings).error().message, "checkpoint.load_step = 10: no such checkpoint in /run/checkpoint; there are: none");
  for (const std::uint64_t step : {10U, 20U}) world.save(step);
  EXPECT_EQ(world.store.find(15, true, warnings).error().message, "checkpoint.load_step = 15: no such checkpoint in /run/checkpoint; there are: 10, 20");
  EXPECT_EQ((*world.store.find(10, true, warnings))->manifest.position.step, Step{10});
  (void)storage.remove(folder / "step-20" / "manifest.json");
  EXPECT_THAT(world.store.find(20, true, warnings).error().message, HasSubstr("checkpoint.load_step = 20: cannot open"));
}

// B092
TEST(CheckpointStore, RetentionCountsNumbersAndLeavesStrangersAlone) {
  MemoryStorage storage;
  World world(1, storage, folder);
  for (const std::uint64_t step : {9U, 10U, 100U}) world.save(step);
  for (const char* stranger : {"notes/a", "step-abc/a", "step-12", "step-007/a", "step-50/a"}) storage.put(folder / stranger, "mine");
  storage.put(folder / "step-11.tmp" / "half", "");
  storage.put(folder / "step-110.tmp-1" / "half", "");
  world.save(101);
  ASSERT_TRUE(world.store.purge(2));
  EXPECT_THAT(names_in(storage),
              ::testing::UnorderedElementsAre("step-100", "step-101", "notes", "step-abc", "step-12", "step-007", "step-50", "step-110.tmp-1"));
  EXPECT_THAT(*world.store.clean(), ElementsAre("step-110.tmp-1"));
  ASSERT_TRUE(world.store.purge(0));
  EXPECT_THAT(*world.store.steps(), ElementsAre(Step{100}, Step{101}));
}

TEST(CheckpointStore, RetentionCountsOnlyWholeCheckpointsAndSparesTheOneInUse) {
  MemoryStorage storage;
  World world(1, storage, folder);
  for (const std::uint64_t step : {10U, 20U, 30U, 40U}) world.save(step);
  storage.put(folder / "step-40" / "rank-00000-of-00001.safetensors", "short");
  ASSERT_TRUE(world.store.purge(2, Step{10}));
  EXPECT_THAT(*world.store.steps(), ElementsAre(Step{10}, Step{20}, Step{30}, Step{40}))
      << "20 and 30 are the two good ones, 10 is in use, 40 is not ours to judge";
  ASSERT_TRUE(world.store.purge(2));
  EXPECT_THAT(*world.store.steps(), ElementsAre(Step{20}, Step{30}, Step{40}));
}

// B093
TEST(CheckpointStore, AStateThatIsNotFiniteIsNotSaved) {
  MemoryStorage storage;
  World world(2, storage, folder);
  world.save(10);
  for (const float poison : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    world.fill(20);
    world.states[1].tensors[0].view.as<float>()[2] = poison;
    try {
      world.save_as_is(20);
      FAIL() << "saved";
    } catch (const std::runtime_error& error) {
      EXPECT_THAT(error.what(), HasSubstr("tensor 'w6' holds infinite values or NaN after step 20"));
    }
  }
  EXPECT_EQ(loaded_step(storage, 2), 10U);
}

// B091
TEST(CheckpointStore, WhatChangesAfterTheCopyIsNotInTheFile) {
  MemoryStorage storage;
  World world(1, storage, folder);
  world.fill(10);
  const auto program = make_snapshot_program(world.states[0].tensors, {}, storage);
  std::vector<std::byte> slot(program->snapshot_bytes());
  testing::IdleStream stream;
  program->copy(stream, Step{10}, slot);
  world.fill(11);
  const auto shard = program->save(Step{10}, slot, world.store.writing_folder(Step{10}, EpochId{1}));
  ASSERT_TRUE(world.store.seal({Step{10}, EpochId{1}, 1, 0, 0, 0, false}, {shard}));
  EXPECT_EQ(loaded_step(storage, 1), 10U);
}

// Run to 30, go back to 10, seal 15: the next start must not find the branch that was left.
TEST(CheckpointStore, WhatIsNewerThanTheOneGoneBackToIsSetAsideAndNeitherFoundNorPurged) {
  MemoryStorage storage;
  World world(2, storage, folder);
  for (const std::uint64_t step : {10U, 20U, 30U}) world.save(step);
  storage.put(folder / "step-20.abandoned-1" / "x", "of an earlier return");
  const auto names = world.store.set_aside_after(Step{10});
  ASSERT_TRUE(names) << names.error().message;
  EXPECT_THAT(*names, ElementsAre("step-20.abandoned-2", "step-30.abandoned-1"));
  EXPECT_TRUE(world.store.set_aside_after(Step{10})->empty()) << "once";
  world.save(15);
  ASSERT_TRUE(world.store.purge(1, Step{15}));
  ASSERT_TRUE(world.store.clean());
  EXPECT_EQ(loaded_step(storage, 2), 15U);
  EXPECT_THAT(names_in(storage), ElementsAre("step-15", "step-20.abandoned-1", "step-20.abandoned-2", "step-30.abandoned-1"));
}

TEST(CheckpointStore, APurgeSparesTheOneThatWasJustSealedAlsoWhenNewerOnesStand) {
  MemoryStorage storage;
  World world(2, storage, folder);
  for (const std::uint64_t step : {10U, 20U, 30U, 15U}) world.save(step);
  ASSERT_TRUE(world.store.purge(2, Step{15}));
  EXPECT_THAT(names_in(storage), ElementsAre("step-15", "step-20", "step-30"));
}

TEST(CheckpointStore, ShardsThatDoNotMakeTheWholeAreNotSealed) {
  MemoryStorage storage;
  World world(2, storage, folder);
  world.fill(10);
  testing::IdleStream stream;
  const auto save = [&](std::uint32_t state, std::uint32_t rank) {
    const auto program = make_snapshot_program(world.states[state].tensors, {.rank = rank, .world = 2}, storage);
    std::vector<std::byte> slot(program->snapshot_bytes());
    program->copy(stream, Step{10}, slot);
    return program->save(Step{10}, slot, world.store.writing_folder(Step{10}, EpochId{1}));
  };
  const RunPosition position{Step{10}, EpochId{1}, 2, 0, 0, 0, false};
  const auto first = save(0, 0);
  EXPECT_THAT(world.store.seal(position, {first}).error().message, HasSubstr("shards hold"));
  auto wrong_size = save(1, 1);
  wrong_size.bytes += 1;
  EXPECT_THAT(world.store.seal(position, {first, wrong_size}).error().message, HasSubstr("bytes, expected"));
  EXPECT_TRUE(world.store.steps()->empty());
}

TEST(CheckpointStore, EveryChangedBitOfAShardIsNoticed) {
  MemoryStorage storage;
  World world(1, storage, folder, {6});
  world.save(10);
  const auto file = folder / "step-10" / "rank-00000-of-00001.safetensors";
  const std::string whole = storage.content(file);
  for (std::size_t at = 0; at < whole.size(); at += 3) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ (1 << at % 8));
    storage.put(file, changed);
    std::vector<std::string> warnings;
    EXPECT_FALSE(world.store.find(-1, true, warnings)) << "byte " << at;
  }
}

TEST(CheckpointStore, EveryChangedByteOfAManifestIsNoticedOrMeansTheSame) {
  MemoryStorage storage;
  World world(1, storage, folder, {3});
  world.save(10);
  const std::string text = storage.content(folder / "step-10" / "manifest.json");
  const std::string same = Manifest::from_json(text, "m")->to_json();
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    const auto manifest = Manifest::from_json(changed, "m");
    EXPECT_TRUE(!manifest || manifest->to_json() == same) << "byte " << i;
  }
}

TEST(CheckpointStore, ARealFileSystemDoesTheSame) {
  const testing::TemporaryFolder run;
  const auto storage = make_posix_storage();
  World world(2, *storage, run.path() / "checkpoint");
  world.save(10);
  world.save(20);
  std::filesystem::create_directories(run.path() / "checkpoint" / "step-30.tmp-1");
  EXPECT_THAT(*world.store.clean(), ElementsAre("step-30.tmp-1"));
  World other(3, *storage, run.path() / "checkpoint");
  std::vector<std::string> warnings;
  const auto found = other.store.find(-1, true, warnings);
  ASSERT_TRUE(found && *found);
  ASSERT_TRUE(other.load(**found));
  EXPECT_TRUE(other.equals_step(20));
  const auto full = storage->create("/dev/full");
  ASSERT_TRUE(full);
  const std::vector<std::byte> bytes(10);
  EXPECT_EQ((*full)->write(bytes).error().message, "cannot write /dev/full: No space left on device");
}

}  // namespace
}  // namespace troupe
