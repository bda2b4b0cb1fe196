#include "src/checkpoint/stored_type.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "tests/unit/checkpoint/checkpoint_world.hpp"

namespace troupe {
namespace {

using testing::folder;
using testing::MemoryStorage;

std::uint16_t half(float value, StoredType type) {
  std::uint16_t bits = 0;
  convert(std::as_bytes(std::span(&value, 1)), StoredType::f32, std::as_writable_bytes(std::span(&bits, 1)), type);
  return bits;
}
float single(std::uint16_t bits, StoredType type) {
  float value = 0;
  convert(std::as_bytes(std::span(&bits, 1)), type, std::as_writable_bytes(std::span(&value, 1)), StoredType::f32);
  return value;
}

// Expected bits: torch.tensor(x).to(torch.float16).view(torch.int16), and the same of bfloat16.
TEST(StoredTypes, RoundToTheNearestEvenAsPyTorch) {
  struct Case {
    float value;
    std::uint16_t f16, bf16;
  };
  for (const Case& c : {Case{0.0F, 0x0000, 0x0000}, Case{-0.0F, 0x8000, 0x8000}, Case{1.0F, 0x3c00, 0x3f80}, Case{0.1F, 0x2e66, 0x3dcd},
                        Case{-3.14159F, 0xc248, 0xc049}, Case{65504.0F, 0x7bff, 0x4780}, Case{65519.0F, 0x7bff, 0x4780}, Case{65520.0F, 0x7c00, 0x4780},
                        Case{1e-7F, 0x0002, 0x33d7}, Case{2.9802322e-8F, 0x0000, 0x3300}, Case{2.9802326e-8F, 0x0001, 0x3300}, Case{6.1e-5F, 0x03ff, 0x3880},
                        Case{1.0004883F, 0x3c00, 0x3f80}, Case{1.0014648F, 0x3c02, 0x3f80}, Case{INFINITY, 0x7c00, 0x7f80}}) {
    EXPECT_EQ(half(c.value, StoredType::f16), c.f16) << c.value;
    EXPECT_EQ(half(c.value, StoredType::bf16), c.bf16) << c.value;
  }
  EXPECT_TRUE(std::isnan(single(half(NAN, StoredType::f16), StoredType::f16)));
  EXPECT_TRUE(std::isnan(single(half(NAN, StoredType::bf16), StoredType::bf16)));
}

TEST(StoredTypes, EveryHalfSurvivesTheWayToSinglePrecisionAndBack) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto given = static_cast<std::uint16_t>(bits);
    for (const StoredType type : {StoredType::f16, StoredType::bf16}) {
      const float value = single(given, type);
      if (std::isnan(value)) continue;
      ASSERT_EQ(half(value, type), given) << "type " << static_cast<int>(type);
    }
  }
}

TEST(StoredTypes, ExportedWeightsLoadAsTheRoundedOnesIntoAnyNumberOfRanks) {
  for (const StoredType type : {StoredType::bf16, StoredType::f16}) {
    MemoryStorage storage;
    testing::World world(2, storage, folder);
    world.fill(10);
    testing::IdleStream stream;
    std::vector<SavedShard> shards;
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      const auto program =
          make_snapshot_program(world.states[rank].tensors, {.rank = rank, .world = 2, .model_only = [](Step) { return true; }, .export_type = type}, storage);
      std::vector<std::byte> slot(program->snapshot_bytes());
      program->copy(stream, Step{10}, slot);
      shards.push_back(program->save(Step{10}, slot, world.store.writing_folder(Step{10}, EpochId{1})));
    }
    ASSERT_TRUE(world.store.seal({.step = Step{10}, .epoch = EpochId{1}, .world = 2, .model_only = true}, shards));
    const auto found = world.store.open(Step{10});
    ASSERT_TRUE(found);
    EXPECT_EQ(found->manifest.tensors.at("w6").dtype, type);
    EXPECT_FALSE(found->manifest.tensors.contains("optimizer.exp_avg.w6"));
    testing::World loaded(3, storage, folder), expected(3, storage, folder);
    ASSERT_TRUE(loaded.load(*found, {.model_only = true}));
    expected.fill(10);
    for (std::size_t rank = 0; rank < 3; ++rank) {
      for (std::size_t t = 0; t < loaded.states[rank].tensors.size(); ++t) {
        const auto& tensor = loaded.states[rank].tensors[t];
        for (std::int64_t i = 0; tensor.model && i < tensor.rows * 5; ++i)
          ASSERT_EQ(tensor.view.as<float>()[i], single(half(expected.states[rank].tensors[t].view.as<float>()[i], type), type)) << tensor.name << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace troupe
