#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "src/model/family_llama3.hpp"
#include "src/model/recompute_search.hpp"
#include "tests/cuda/allocations.hpp"
#include "tests/cuda/course.hpp"
#include "tests/model/ranks.hpp"
#include "tools/launcher/kernel_scratch.hpp"

// What a user may turn on, in whole steps of one rank on a GPU: against the CPU's steps, or against the same steps without it.
namespace troupe::test {
namespace {

TEST(CudaTraining, DocumentsAreIsolatedAsOnTheCpu) {
  const ModelDescription model = llama3("quickstart");
  for (const auto& [compute, tolerance] : {std::pair{DType::f32, 2e-5}, std::pair{DType::bf16, 1e-2}}) {
    TrainingOptions options = small_options(compute, false), together = options;
    options.batch.documents = true;
    Devices devices;
    const Course cpu = train_on(*devices.cpu, model, options), gpu = train_on(*devices.gpu, model, options), whole = train_on(*devices.gpu, model, together);
    for (std::size_t i = 0; i < cpu.losses.size(); ++i) EXPECT_LT(apart(gpu.losses[i], cpu.losses[i]), tolerance) << name_of(compute) << ", step " << i + 1;
    if (compute == DType::f32) {
      EXPECT_GT(apart(gpu.losses.front(), whole.losses.front()), 10 * tolerance) << "the same rows, seen whole, have another loss";
    }
  }
}

struct Recipe {
  const char* name;
  Float8Recipe recipe;
  DType compute;
  double tolerance;
};
class CudaRecipes : public ::testing::TestWithParam<Recipe> {};
INSTANTIATE_TEST_SUITE_P(Recipes, CudaRecipes,
                         ::testing::Values(Recipe{"RowwiseInFp32", Float8Recipe::rowwise, DType::f32, 2e-3},
                                           Recipe{"RowwiseInBf16", Float8Recipe::rowwise, DType::bf16, 2e-2},
                                           Recipe{"RowwiseWithWholeWeightGradients", Float8Recipe::rowwise_with_gw_hp, DType::bf16, 2e-2}),
                         [](const auto& test) { return test.param.name; });

TEST_P(CudaRecipes, RowWiseScalesTrainAsOnTheCpu) {
  const Recipe& recipe = GetParam();
  const ModelDescription model = llama3("quickstart");
  TrainingOptions options = small_options(recipe.compute, true);
  options.float8.recipe = recipe.recipe;
  Devices devices;
  const Course cpu = train_on(*devices.cpu, model, options), gpu = train_on(*devices.gpu, model, options);
  for (std::size_t i = 0; i < cpu.losses.size(); ++i) EXPECT_LT(apart(gpu.losses[i], cpu.losses[i]), recipe.tolerance) << "step " << i + 1;
  EXPECT_LT(gpu.losses.back(), gpu.losses.front());
  EXPECT_EQ(gpu.activations.saturated + gpu.activations.non_finite, 0.0);
}

TEST(CudaTraining, GradientsKeptInBfloat16TrainAsOnTheCpuAndAsThoseInFloat32) {
  const ModelDescription model = llama3("quickstart");
  Devices devices;
  for (const bool float8 : {false, true}) {
    TrainingOptions options = small_options(DType::bf16, float8);
    options.micro_batches = 1;
    options.gradients_in_place = true;
    const Course whole = train_on(*devices.gpu, model, options);
    options.gradient = DType::bf16;
    const Course cpu = train_on(*devices.cpu, model, options), gpu = train_on(*devices.gpu, model, options);
    for (std::size_t i = 0; i < cpu.losses.size(); ++i) {
      EXPECT_LT(apart(gpu.losses[i], cpu.losses[i]), 2e-2) << "fp8 " << float8 << ", step " << i + 1;
      EXPECT_LT(apart(gpu.losses[i], whole.losses[i]), 2e-2) << "fp8 " << float8 << ", step " << i + 1;
    }
    EXPECT_LT(apart(gpu.norms.front(), whole.norms.front()), 1e-2);
    EXPECT_LT(gpu.losses.back(), gpu.losses.front());
  }
}

TEST(CudaTraining, LayersUpdatedInTheBackwardPassHaveTheSameStateToTheBit) {
  const ModelDescription model = llama3("quickstart");
  Devices devices({.deterministic = true});
  for (const bool float8 : {false, true}) {
    TrainingOptions options = small_options(DType::bf16, float8);
    options.micro_batches = 1;
    options.max_norm = 0;
    const Course late = train_on(*devices.gpu, model, options);
    options.step_in_backward = true;
    const Course early = train_on(*devices.gpu, model, options);
    EXPECT_EQ(early.losses, late.losses) << "fp8 " << float8;
    EXPECT_TRUE(early.state == late.state) << "fp8 " << float8;
  }
}

TEST(CudaTraining, AveragesOfTheWeightsAreTheCpus) {
  TrainingOptions options = small_options(DType::f32, false);
  options.ema_decay = 0.75;
  Devices devices;
  const ModelDescription model = llama3("quickstart");
  const Course cpu = train_on(*devices.cpu, model, options, {.steps = 4}), gpu = train_on(*devices.gpu, model, options, {.steps = 4});
  ASSERT_FALSE(gpu.averages.empty());
  EXPECT_LT(apart(gpu.averages, cpu.averages), 1e-4);
}

TEST(CudaTraining, ValidationIsTheCpusAndLeavesTrainingAsItIsToTheBit) {
  TrainingOptions options = small_options(DType::bf16, true), without = options;
  options.evaluation = {3, 32};
  Devices devices({.deterministic = true});
  const ModelDescription model = llama3("quickstart");
  const Course cpu = train_on(*devices.cpu, model, options, {.steps = 4, .evaluates = true});
  const Course gpu = train_on(*devices.gpu, model, options, {.steps = 4, .evaluates = true}), plain = train_on(*devices.gpu, model, without, {.steps = 4});
  ASSERT_EQ(gpu.evaluations.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) EXPECT_LT(apart(gpu.evaluations[i], cpu.evaluations[i]), 2e-2) << "validation " << i + 1;
  EXPECT_EQ(gpu.losses, plain.losses);
  EXPECT_TRUE(gpu.state == plain.state);
}

/// Bytes of the device that are handed out while a model of these options is there.
std::size_t taken_with(Devices& devices, const ModelDescription& model, const TrainingOptions& options) {
  const TrainingModel training(model, options, *devices.gpu, nullptr);
  EXPECT_EQ(devices.gpu->allocated_bytes(Placement::device), training.device_bytes());
  return training.device_bytes();
}

/// The same steps in less memory: bit for bit in bf16. With fp8 an addition or a cast may be joined to the operation before it in one mode and not in
/// another, where it then meets a value that was rounded once more.
void expect_same(const Course& again, const Course& all, bool float8, Recompute mode) {
  if (float8) {
    for (std::size_t i = 0; i < all.losses.size(); ++i) EXPECT_LT(apart(again.losses[i], all.losses[i]), 1e-3) << static_cast<int>(mode) << ", step " << i + 1;
    return;
  }
  EXPECT_EQ(again.losses, all.losses) << static_cast<int>(mode);
  EXPECT_EQ(again.norms, all.norms) << static_cast<int>(mode);
  EXPECT_TRUE(again.state == all.state) << static_cast<int>(mode);
}

TEST(CudaTraining, EveryWayOfComputingAgainGivesTheSameStepsInTheMemoryThatWasPlanned) {
  const ModelDescription model = llama3("quickstart");
  Devices devices({.deterministic = true});
  for (const bool float8 : {false, true}) {
    TrainingOptions options = small_options(DType::bf16, float8);
    const Course all = train_on(*devices.gpu, model, options, {.steps = 3});
    const std::size_t taken = taken_with(devices, model, options);
    std::size_t before = all.arena;
    for (const Recompute mode : {Recompute::operations, Recompute::full}) {
      options.recompute = mode;
      const Course again = train_on(*devices.gpu, model, options, {.steps = 3});
      expect_same(again, all, float8, mode);
      EXPECT_LT(again.arena, before) << static_cast<int>(mode);
      EXPECT_EQ(taken - taken_with(devices, model, options), all.arena - again.arena) << "the device's memory falls by what the plan says";
      before = again.arena;
    }
    options.recompute = Recompute::automatic;
    options.recompute.arena_limit = (all.arena + before) / 2;
    const Course chosen = train_on(*devices.gpu, model, options, {.steps = 3});
    EXPECT_LE(chosen.arena, options.recompute.arena_limit) << "what fits";
    EXPECT_GT(chosen.arena, before) << "and no less than is of use";
    expect_same(chosen, all, float8, Recompute::automatic);
  }
}

/// The 8B's layers, two of them, so that the kernels are those of the 8B.
TEST(CudaTraining, NothingIsAllocatedAfterTheSecondStepAndThePeakIsAsPredicted) {
  Llama3Flavour flavour = llama3_flavour("8B").value();
  flavour.layers = 2;
  const ModelDescription model = describe_llama3(flavour);
  TrainingOptions options = small_options(DType::bf16, true);
  options.batch = {1, 2048};
  Devices devices;
  const std::size_t before = devices.gpu->measure_memory().in_use;
  std::uint64_t second_calls = 0, last_calls = 0;
  MemoryReading second, last;
  const auto look = [&](std::uint64_t step) {
    last = devices.gpu->measure_memory();
    last_calls = allocator_calls();
    if (step > 2) return;
    second = last;
    second_calls = last_calls;
  };
  (void)train_on(*devices.gpu, model, options, {.steps = 8, .learning_rate = 1e-4, .after = look});
  EXPECT_GT(second_calls, 0U) << "the counter stands in the allocator's way";
  EXPECT_EQ(last_calls, second_calls) << "calls of CUDA's allocators";
  EXPECT_EQ(last.in_use, second.in_use) << "bytes of the device, by the driver";
  EXPECT_EQ(last.scratch, second.scratch);
  const TrainingEstimate estimate = estimate_training(model, options);
  std::size_t planned = 0;
  for (const MemoryItem& item : estimate.memory) planned += item.placement == Placement::device ? item.bytes : 0;
  planned += options.batch.bytes();
  const double predicted = static_cast<double>(before + planned + kernel_scratch_of(estimate)), found = static_cast<double>(last.in_use);
  std::printf("predicted %.3f GiB, found %.3f GiB (%+.2f %%); scratch %.3f GiB predicted, %.3f found\n", predicted / 1073741824.0, found / 1073741824.0,
              100 * (predicted / found - 1), static_cast<double>(kernel_scratch_of(estimate)) / 1073741824.0, static_cast<double>(last.scratch) / 1073741824.0);
  EXPECT_LT(apart(predicted, found), 0.03);
}

TEST_P(CudaRecipes, TakeTheScratchThatWasForetold) {
  Llama3Flavour flavour = llama3_flavour("8B").value();
  flavour.layers = 1;
  flavour.vocab_size = 4096;
  const ModelDescription model = describe_llama3(flavour);
  TrainingOptions options = small_options(GetParam().compute, true);
  options.float8.recipe = GetParam().recipe;
  options.batch = {1, 512};
  Devices devices;
  std::size_t found = 0;
  (void)train_on(*devices.gpu, model, options,
                 {.steps = 1, .learning_rate = 1e-4, .after = [&](std::uint64_t) { found = devices.gpu->measure_memory().scratch; }});
  EXPECT_LT(apart(static_cast<double>(kernel_scratch_of(estimate_training(model, options))), static_cast<double>(found)), 0.01);
}

}  // namespace
}  // namespace troupe::test
