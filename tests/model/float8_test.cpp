#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "tests/model/ranks.hpp"

namespace troupe::test {
namespace {

TrainingOptions float8(std::uint32_t world, DType compute = DType::bf16) {
  TrainingOptions o;
  o.batch = {4 / world, 16};
  o.world = world;
  o.compute = compute;
  o.float8 = {.enable = true, .filter_fqns = {"output"}, .all_gather = true};
  return o;
}

/// The whole of layer 0's weights slot as rank 0 sees it after `scales` and a gather, cut to the valid rows of its fp8 parameters.
std::vector<std::byte> gathered_codes(RankContext& rank) {
  Stream stream;
  const WeightLayout& layout = rank.model.estimate().layout;
  std::vector<std::byte> slot(layout.units[1].weights_bytes), codes;
  rank.model.shards().scales(stream, Unit{1}, rank.communicator);
  rank.model.shards().gather(stream, Unit{1}, slot, rank.communicator);
  for (const ParameterSlot& s : layout.units[1].slots) {
    if (s.stored != DType::e4m3) continue;
    const auto start = slot.begin() + static_cast<std::ptrdiff_t>(s.weight_offset);
    codes.insert(codes.end(), start, start + layout.parameters[s.parameter].description.elements());
  }
  return codes;
}

/// All of wq is 1 but its last row, which lies on the last rank, has 100.
void one_large_weight(TrainingModel& model) {
  for (const StateTensor& tensor : model.state()) {
    if (tensor.name != "layers.0.attention.wq.weight") continue;
    for (std::int64_t i = 0; i < tensor.view.shape.elements(); ++i) tensor.view.as<float>()[i] = 1.0F;
    if (tensor.first_row + tensor.rows == tensor.global_shape[0]) tensor.view.as<float>()[tensor.view.shape.elements() - 1] = 100.0F;
  }
}

TEST(Float8, TheScaleOfAWeightIsThatOfTheWholeTensorOnAnyNumberOfRanks) {
  std::vector<std::vector<std::byte>> codes;
  std::vector<double> losses;
  // Activations are scaled by each rank's own rows (as torchao does without tensor parallelism), so all ranks get the same row here.
  const FillRow same_row = [fill = markov_rows(64)](Step step, std::uint64_t, auto tokens, auto labels) { fill(step, 0, tokens, labels); };
  for (const std::uint32_t world : {1U, 2U, 4U}) {
    on_ranks(llama3("tiny"), float8(world), [&](RankContext& rank) {
      one_large_weight(rank.model);
      const auto found = gathered_codes(rank);
      PlainStep plain(rank.model, rank.device, rank.communicator, deal(rank.model.options(), same_row));
      const StepNumbers step = plain.run(EpochId{1}, Step{1}, 0.0);
      if (rank.rank != 0) return;
      codes.push_back(found);
      losses.push_back(step.verdict.mean_loss);
    });
  }
  EXPECT_EQ(codes[1], codes[0]);
  EXPECT_EQ(codes[2], codes[0]);
  EXPECT_DOUBLE_EQ(losses[1], losses[0]);
  EXPECT_DOUBLE_EQ(losses[2], losses[0]);
}

TEST(Float8, StepsOneTwoAndThreeScaleByOneFormulaInFp32) {
  on_ranks(llama3("tiny"), float8(2), [](RankContext& rank) {
    for (const StateTensor& tensor : rank.model.state()) {
      if (tensor.name == "layers.0.attention.wk.weight" && rank.rank == 1) tensor.view.as<float>()[5] = 3.0F;
    }
    PlainStep plain(rank.model, rank.device, rank.communicator, deal(rank.model.options(), markov_rows(64)));
    const auto first = gathered_codes(rank);
    for (std::uint64_t step = 1; step <= 3; ++step) {
      (void)plain.run(EpochId{1}, Step{step}, 0.0);
      EXPECT_EQ(gathered_codes(rank), first);
      const std::size_t wk = 2;  // tok_embeddings, wq, wk
      ASSERT_EQ(rank.model.estimate().layout.parameters[wk].description.name, "layers.0.attention.wk.weight");
      EXPECT_EQ(*rank.model.float8_scales()[wk], 448.0F / 3.0F);  // 149.3333; 149 would betray a bf16 scale
    }
  });
}

TEST(Float8, WeightsTravelAsOneByteAValue) {
  const auto numbers = train(llama3("tiny"), float8(2), markov_rows(64), 1, 1e-3);
  const WeightLayout layout = estimate_training(llama3("tiny"), float8(2)).layout;
  std::uint64_t expected = 0;  // the other rank's half, for forward and for backward, which the embedding does not need
  for (const LaidParameter& p : layout.parameters)
    expected += static_cast<std::uint64_t>(p.description.elements()) / 2 * (p.fp8 ? 1 : 2) * (p.unit == 0 ? 1 : 2);
  EXPECT_EQ(numbers[0].bytes_gathered, expected);
}

TEST(Float8, CastBeforeOrAfterTheGatherGivesTheSameBits) {
  TrainingOptions after = float8(2, DType::f32);
  after.float8.all_gather = false;
  const auto early = train(llama3("tiny"), float8(2, DType::f32), markov_rows(64), 5, 1e-3);
  const auto late = train(llama3("tiny"), after, markov_rows(64), 5, 1e-3);
  for (std::size_t i = 0; i < early.size(); ++i) {
    EXPECT_EQ(early[i].verdict.mean_loss, late[i].verdict.mean_loss);
    EXPECT_EQ(early[i].verdict.grad_norm, late[i].verdict.grad_norm);
  }
}

TEST(Float8, RecomputedBlocksGiveTheSameBits) {
  TrainingOptions recomputed = float8(2);
  recomputed.recompute = Recompute::full;
  const auto saved = train(llama3("tiny"), float8(2), markov_rows(64), 5, 1e-3);
  const auto again = train(llama3("tiny"), recomputed, markov_rows(64), 5, 1e-3);
  for (std::size_t i = 0; i < saved.size(); ++i) EXPECT_EQ(saved[i].verdict.grad_norm, again[i].verdict.grad_norm);
}

TEST(Float8, AMicroBatchWithoutTargetsGivesZerosAndNoNan) {
  TrainingOptions o = float8(1);
  o.batch.rows = 1;
  o.micro_batches = 2;
  const FillRow second_row_only = [fill = markov_rows(64)](Step step, std::uint64_t row, std::span<std::int32_t> tokens, std::span<std::int32_t> labels) {
    fill(step, row, tokens, labels);
    if (row == 0) std::fill(labels.begin(), labels.end(), -100);
  };
  for (const StepNumbers& step : train(llama3("tiny"), o, second_row_only, 3, 1e-3)) {
    EXPECT_EQ(step.verdict.outcome, VerdictOutcome::commit);
    EXPECT_TRUE(std::isfinite(step.verdict.grad_norm));
    EXPECT_EQ(step.verdict.tokens, 16);
  }
}

double mean_of_steps_151_to_200(const TrainingOptions& options) {
  Llama3Flavour flavour = llama3_flavour("tiny").value();
  flavour.dim = 64;
  flavour.ffn_hidden = 192;
  const auto numbers = train(describe_llama3(flavour), options, markov_rows(64), 200, 3e-3);
  double sum = 0;
  for (std::size_t i = 150; i < 200; ++i) sum += numbers[i].verdict.mean_loss;
  return sum / 50;
}

TEST(Float8, TheMeanLossOfSteps151To200IsWithinOnePercentOfBf16s) {
  TrainingOptions options = float8(2);
  options.batch = {4, 32};
  TrainingOptions bf16 = options;
  bf16.float8.enable = false;
  const double with = mean_of_steps_151_to_200(options), without = mean_of_steps_151_to_200(bf16);
  RecordProperty("fp8", std::to_string(with));
  RecordProperty("bf16", std::to_string(without));
  EXPECT_NEAR(with / without, 1.0, 0.01);
  EXPECT_LT(without, std::log(64.0) - 1.0) << "nothing was learnt, so nothing was compared";
  EXPECT_NE(with, without);
}

}  // namespace
}  // namespace troupe::test
