#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "src/model/arena.hpp"
#include "src/model/family_llama3.hpp"
#include "src/model/training_model.hpp"

namespace troupe {
namespace {

using testing::Contains;
using testing::HasSubstr;

ModelDescription model(const char* flavour) { return describe_llama3(llama3_flavour(flavour).value()); }

TrainingOptions options(std::uint32_t rows, std::uint32_t seq_len) {
  TrainingOptions o;
  o.batch = {rows, seq_len};
  return o;
}

std::ptrdiff_t count(const std::vector<Instruction>& list, InstructionCode code) {
  return std::count_if(list.begin(), list.end(), [&](const Instruction& i) { return i.code == code; });
}

/// No two buffers that live at one instruction share a byte, and all lie within the arena.
void expect_disjoint(const TapePlan& plan) {
  for (std::size_t a = 0; a < plan.buffers.size(); ++a) {
    const TapeBuffer& x = plan.buffers[a];
    ASSERT_LE(x.offset + x.bytes, plan.arena_bytes) << x.name;
    for (std::size_t b = 0; b < a; ++b) {
      const TapeBuffer& y = plan.buffers[b];
      const bool together = x.first <= y.last && y.first <= x.last;
      const bool overlap = x.offset < y.offset + y.bytes && y.offset < x.offset + x.bytes;
      ASSERT_FALSE(together && overlap) << x.name << " and " << y.name;
    }
  }
}

TEST(Arena, NoTwoThatLiveTogetherOverlap) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<Lifetime> lives;
    for (int i = 0; i < 60; ++i) {
      const auto first = static_cast<std::uint32_t>(random() % 100);
      lives.push_back({first, first + static_cast<std::uint32_t>(random() % 30), random() % 5000});
    }
    const ArenaPlacement placement = place_in_arena(lives);
    EXPECT_GE(placement.bytes, placement.peak);
    for (std::size_t a = 0; a < lives.size(); ++a) {
      for (std::size_t b = 0; b < a; ++b) {
        const bool together = lives[a].first <= lives[b].last && lives[b].first <= lives[a].last;
        const bool apart = placement.offsets[a] + lives[a].bytes <= placement.offsets[b] || placement.offsets[b] + lives[b].bytes <= placement.offsets[a];
        EXPECT_TRUE(!together || apart);
      }
    }
  }
}

TEST(TapePlan, BuffersThatLiveTogetherLieApartInEveryMode) {
  for (const bool float8 : {false, true}) {
    for (const Recompute recompute : {Recompute::none, Recompute::full}) {
      TrainingOptions o = options(2, 32);
      o.compute = DType::bf16;
      o.recompute = recompute;
      o.float8.enable = float8;
      expect_disjoint(estimate_training(model("tiny"), o).tapes);
    }
  }
}

TEST(TapePlan, FirstFitWastesLittle) {
  for (const Recompute recompute : {Recompute::none, Recompute::full}) {
    TrainingOptions o = options(1, 8192);
    o.compute = DType::bf16;
    o.recompute = recompute;
    const TapePlan plan = estimate_training(model("8B"), o).tapes;
    EXPECT_LE(static_cast<double>(plan.arena_bytes), 1.05 * static_cast<double>(plan.peak_bytes));
  }
}

TEST(TapePlan, TheResidualGradientIsOneBufferThroughAllBlocks) {
  const TapePlan plan = estimate_training(model("tiny"), options(2, 16)).tapes;
  EXPECT_EQ(std::count_if(plan.buffers.begin(), plan.buffers.end(), [](const TapeBuffer& b) { return b.name.ends_with(" d x"); }), 1);
  for (const auto& unit : plan.backward) EXPECT_EQ(count(unit, InstructionCode::copy), 0);
}

TEST(TapePlan, AnInputOfSeveralFp8LinearsIsCastOnce) {
  TrainingOptions o = options(2, 32);
  o.compute = DType::bf16;
  o.float8 = {.enable = true, .filter_fqns = {"output"}, .all_gather = true};
  const TapePlan plan = estimate_training(model("tiny"), o).tapes;
  EXPECT_EQ(count(plan.forward[1], InstructionCode::linear_fp8), 7);
  EXPECT_EQ(count(plan.forward[1], InstructionCode::cast_fp8), 4);   // for q k v, for o, for gate and up, for down
  EXPECT_EQ(count(plan.backward[1], InstructionCode::cast_fp8), 7);  // each output gradient
  EXPECT_EQ(count(plan.forward[1], InstructionCode::cast_weight_fp8), 0);
  o.float8.all_gather = false;
  EXPECT_EQ(count(estimate_training(model("tiny"), o).tapes.forward[1], InstructionCode::cast_weight_fp8), 7);
}

TEST(TapePlan, TheAmaxOfAGradientIsFoundByTheKernelThatWroteItLast) {
  TrainingOptions o = options(2, 32);
  o.compute = DType::bf16;
  o.float8 = {.enable = true, .filter_fqns = {"output"}, .all_gather = true};
  const auto found = [](const TapePlan& plan) {
    std::vector<std::string> names;
    for (const Instruction& i : plan.backward[1]) {
      if (i.code == InstructionCode::cast_fp8 && i.amax_found) names.push_back(plan.buffers[static_cast<std::size_t>(i.operands[1])].name);
    }
    return names;
  };
  const TapePlan plan = estimate_training(model("tiny"), o).tapes;
  const std::string d = "layer 0 d ", e5m2 = ".float8_e5m2";
  EXPECT_EQ(found(plan), (std::vector<std::string>{d + "down" + e5m2, d + "up" + e5m2, d + "gate" + e5m2, d + "o" + e5m2, d + "k" + e5m2, d + "q" + e5m2}))
      << "of norms, SwiGLU and rotary; v's gradient comes from attention, which finds none";
  for (const Instruction& i : plan.backward[1]) {
    for (const int scale : i.amaxes) EXPECT_LT(plan.buffers[static_cast<std::size_t>(scale)].first, plan.buffers[static_cast<std::size_t>(scale)].last);
  }
  o.float8.recipe = Float8Recipe::rowwise;
  EXPECT_TRUE(found(estimate_training(model("tiny"), o).tapes).empty()) << "scales of rows and columns are other amaxes";
}

TEST(TapePlan, AnFp8InputIsSavedAsOneByteAndItsHighPrecisionFormDies) {
  TrainingOptions o = options(2, 32);
  o.compute = DType::bf16;
  o.float8 = {.enable = true, .filter_fqns = {"output"}, .all_gather = true};
  for (const TapeBuffer& b : estimate_training(model("tiny"), o).tapes.buffers) {
    if (b.name == "layer 0 attention_norm" || b.name == "layer 0 attention_norm.float8_e4m3") {
      EXPECT_EQ(b.saved, b.dtype == DType::e4m3) << b.name;
    }
  }
}

TEST(TapePlan, ARecomputedBlockSavesItsInputAloneAndSkipsWhatBackwardDoesNotRead) {
  TrainingOptions o = options(1, 64);
  const std::size_t kept = estimate_training(model("quickstart"), o).tapes.peak_saved;
  o.recompute = Recompute::full;
  const TrainingEstimate again = estimate_training(model("quickstart"), o);
  EXPECT_LT(again.tapes.peak_saved * 8, kept);
  EXPECT_EQ(count(again.tapes.backward[1], InstructionCode::linear), 6);  // all but the down projection
  EXPECT_GT(again.units[1].recomputed_flops, 0.7 * again.units[1].forward_flops);
  EXPECT_LT(again.units[1].recomputed_flops, 0.8 * again.units[1].forward_flops) << "the down projection is a quarter of it";
  EXPECT_GT(again.units[1].backward_flops, 1.95 * again.units[1].forward_flops + again.units[1].recomputed_flops);
}

TEST(TapePlan, MemoryByKindAddsUpToTheArena) {
  const TrainingEstimate e = estimate_training(model("quickstart"), options(2, 128));
  std::size_t arena = 0;
  for (const MemoryItem& item : e.memory) {
    if (item.kind == "saved activations" || item.kind.starts_with("working") || item.kind.starts_with("arena")) arena += item.bytes;
  }
  EXPECT_EQ(arena, e.tapes.arena_bytes);
}

TEST(TapePlan, TheLargestModelIsPlannedWithoutADevice) {
  TrainingOptions o = options(1, 8192);
  o.compute = DType::bf16;
  o.world = 512;
  o.float8 = {.enable = true, .filter_fqns = {"output"}, .all_gather = true};
  const TrainingEstimate e = estimate_training(model("405B"), o);
  EXPECT_EQ(e.units.size(), 128U);
  EXPECT_EQ(e.layout.float8.converted.size(), 126 * 7U);
  // One byte a value of the block's 3,221 million linear weights, two of its norms'.
  EXPECT_EQ(e.units[1].weights_bytes, static_cast<std::size_t>(2 * 16384 * 16384 + 2 * 1024 * 16384 + 3 * std::int64_t{53248} * 16384) + 2 * 2 * 16384);
}

TEST(TapePlan, TheForwardFlopsOfAllUnitsAreAThirdOfTheFormula) {
  const TrainingEstimate e = estimate_training(model("8B"), options(1, 8192));
  double forward = 0, backward = 0;
  for (const UnitCost& unit : e.units) {
    forward += unit.forward_flops;
    backward += unit.backward_flops;
  }
  EXPECT_NEAR(forward / (e.flops_per_token * 8192 / 3), 1.0, 0.01);
  EXPECT_GT(backward, 1.95 * forward);
}

TEST(Float8Selection, FilteredAndIndivisibleLinearsStayAndSayWhy) {
  Llama3Flavour flavour = llama3_flavour("tiny").value();
  flavour.ffn_hidden = 24;
  flavour.vocab_size = 65;
  TrainingOptions o = options(1, 16);
  o.float8 = {.enable = true, .filter_fqns = {"wo"}, .all_gather = true};
  const Float8Selection chosen = estimate_training(describe_llama3(flavour), o).layout.float8;
  EXPECT_THAT(chosen.converted, testing::UnorderedElementsAre("layers.0.attention.wq", "layers.0.attention.wk", "layers.0.attention.wv",
                                                              "layers.1.attention.wq", "layers.1.attention.wk", "layers.1.attention.wv"));
  const auto skipped = [&](const char* name, const char* why) {
    return Contains(testing::AllOf(testing::Field(&Float8Selection::Skipped::name, name), testing::Field(&Float8Selection::Skipped::why, HasSubstr(why))));
  };
  EXPECT_THAT(chosen.skipped, skipped("layers.0.attention.wo", "filter \"wo\""));
  EXPECT_THAT(chosen.skipped, skipped("layers.0.feed_forward.w1", "24 x 32 is not divisible by 16"));
  EXPECT_THAT(chosen.skipped, skipped("output", "65 x 32 is not divisible by 16"));
}

TEST(Float8Selection, ABatchThatDoesNotDivideKeepsEveryLinearAndIsNamed) {
  TrainingOptions o = options(1, 12);
  o.float8.enable = true;
  const Float8Selection chosen = estimate_training(model("tiny"), o).layout.float8;
  EXPECT_TRUE(chosen.converted.empty());
  EXPECT_EQ(chosen.skipped.size(), 15U);
  EXPECT_THAT(chosen.skipped.front().why, HasSubstr("batch x seq = 1 x 12 = 12 is not divisible by 16"));
}

TEST(TapeBuilder, AValueThatIsOverwrittenMayHaveNoOtherReader) {
  TapeBuilder t;
  const ValueIndex x = t.input("x", 8);
  const ValueIndex r = t.rotary("r", x, 2, 4);
  const ValueIndex y = t.add("y", x, r);
  EXPECT_THROW((void)t.finish(y), std::logic_error);
}

TEST(TapePlan, AGradientThatTwoValuesShareIsCopiedBeforeItIsChanged) {
  // The gradient of the sum is shared by a and x; a's has the norm's added while x's is still to be read.
  ModelDescription m = model("tiny");
  TapeBuilder t;
  const ValueIndex x = t.input("x", 32);
  const ValueIndex a = t.linear("a", x, 0, 32);
  const ValueIndex b = t.rms_norm("b", a, 7, 1e-5);
  const ValueIndex y = t.add("y", t.add("s", a, b), x);
  m.units[1].tape = t.finish(y);
  const TapePlan plan = estimate_training(m, options(1, 16)).tapes;
  expect_disjoint(plan);
  EXPECT_EQ(count(plan.backward[1], InstructionCode::copy), 1);
}

}  // namespace
}  // namespace troupe
