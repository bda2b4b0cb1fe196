#include "src/checkpoint/restore.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/checkpoint/shard_file.hpp"
#include "tests/unit/checkpoint/checkpoint_world.hpp"

namespace troupe {
namespace {

using testing::folder;
using ::testing::HasSubstr;
using testing::loaded_step;
using testing::MemoryStorage;
using testing::World;

// B089: first dimensions 6, 1, 3 and 7, parameters and both moments
TEST(Restore, AnyNumberOfRanksLoadsWhatAnyOtherSaved) {
  for (std::uint32_t from = 1; from <= 5; ++from) {
    MemoryStorage storage;
    World(from, storage, folder).save(10);
    for (std::uint32_t to = 1; to <= 5; ++to) EXPECT_EQ(loaded_step(storage, to), 10U) << from << " ranks to " << to;
  }
}

TEST(Restore, ThePositionOfTheRunComesBack) {
  MemoryStorage storage;
  World world(2, storage, folder);
  world.save(10, false, 3);
  const auto found = world.store.open(Step{10});
  ASSERT_TRUE(found) << found.error().message;
  const auto& position = found->manifest.position;
  EXPECT_EQ(position.step, Step{10});
  EXPECT_EQ(position.epoch, EpochId{3});
  EXPECT_EQ(position.world, 2U);
  EXPECT_EQ(position.config_hash, 0xfedcba9876543210U);
  EXPECT_EQ(position.data_row, 80U);
  EXPECT_EQ(position.tokens, 10000U);
}

TEST(Restore, ARankReadsOnlyThePiecesThatHoldItsRows) {
  MemoryStorage storage;
  constexpr std::int64_t rows = 1 << 20;  // 20 MiB a tensor: five pieces
  World world(1, storage, folder, {rows});
  world.save(10);
  const auto found = world.store.open(Step{10});
  World half(2, storage, folder, {rows});
  storage.bytes_read = 0;
  ASSERT_TRUE(restore_state(found->manifest, found->folder, storage, half.states[1].tensors));
  const std::uint64_t needed = 3U * rows / 2 * 5 * 4;
  EXPECT_GE(storage.bytes_read, needed) << "half of a weight and of its two moments";
  EXPECT_LE(storage.bytes_read, needed + 4 * piece_bytes + 65536) << "and what shares a piece with them, and the header";
  EXPECT_TRUE(half.states[1].equals_step(10));
}

TEST(Restore, APieceThatWasDamagedAfterTheCheckIsNamedWithFileAndBytes) {
  MemoryStorage storage;
  World world(1, storage, folder, {1 << 20});
  world.save(10);
  const auto found = world.store.open(Step{10});
  const auto path = found->folder / found->manifest.files[0].file;
  std::string content = storage.content(path);
  content[4096 + piece_bytes + 77] ^= 1;
  storage.put(path, content);
  World again(1, storage, folder, {1 << 20});
  EXPECT_THAT(again.load(*found).error().message, HasSubstr(path.string() + ": the checksum of bytes " + std::to_string(4096 + piece_bytes) + " to " +
                                                            std::to_string(4096 + 2 * piece_bytes - 1) + " does not match: the file is damaged"));
}

TEST(Restore, WeightsAloneAreNoPointToGoOnFrom) {
  MemoryStorage storage;
  World world(2, storage, folder);
  world.save(10, true);
  const auto found = world.store.open(Step{10});
  ASSERT_TRUE(found);
  EXPECT_THAT(world.load(*found).error().message, HasSubstr("holds weights only (checkpoint.last_save_model_only)"));
  World fresh(3, storage, folder);
  ASSERT_TRUE(fresh.load(*found, {.model_only = true, .copy_in = {}}));
  world.fill(10);
  EXPECT_EQ(std::memcmp(fresh.states[0].tensors[0].view.data, world.states[0].tensors[0].view.data, 2 * 5 * 4), 0);
  EXPECT_EQ(fresh.states[0].tensors[1].view.as<float>()[0], 0.0F) << "moments stay as they were";
}

TEST(Restore, AModelOfAnotherShapeIsNamedByTensor) {
  MemoryStorage storage;
  World(2, storage, folder).save(10);
  const auto load_into = [&](const std::vector<std::int64_t>& dimensions) {
    World other(1, storage, folder, dimensions);
    const auto loaded = other.load(*other.store.open(Step{10}));
    return loaded ? "loaded" : loaded.error().message;
  };
  EXPECT_THAT(load_into({6, 1, 3}), HasSubstr("/run/checkpoint/step-10: holds tensor 'optimizer.exp_avg.w7', which this model does not have"));
  EXPECT_THAT(load_into({6, 1, 3, 7, 8}), HasSubstr("tensor 'w8' is not in the checkpoint"));
  World other(1, storage, folder);
  other.states[0].tensors[0].global_shape = {12, 5};
  EXPECT_THAT(other.load(*other.store.open(Step{10})).error().message, HasSubstr("tensor 'w6': expected F32 [12, 5], found F32 [6, 5]"));
}

}  // namespace
}  // namespace troupe
