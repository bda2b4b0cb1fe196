#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>

#include "tests/model/ranks.hpp"

namespace troupe::test {
namespace {

struct World {
  std::uint32_t replicas, shards, micro_batches = 1;
  const char* flavour = "tiny";
};
void PrintTo(const World& world, std::ostream* out) {
  *out << world.flavour << " on " << world.replicas << " x " << world.shards << " ranks, " << world.micro_batches << " micro-batches";
}

TrainingOptions options(const World& world, bool in_backward) {
  TrainingOptions o;
  o.batch = {8 / (world.replicas * world.shards * world.micro_batches), 16};
  o.micro_batches = world.micro_batches;
  o.world = world.shards;
  o.replicas = world.replicas;
  o.reduce_last = world.micro_batches > 1;
  o.max_norm = 0;
  o.ema_decay = 0.75;
  o.step_in_backward = in_backward;
  return o;
}

struct Outcome {
  std::vector<StepNumbers> numbers;                ///< of rank 0
  std::array<std::vector<std::byte>, 8> states{};  ///< [rank]
};

Outcome run(const World& world, bool in_backward, std::uint64_t steps = 5) {
  Outcome result;
  on_ranks(llama3(world.flavour), options(world, in_backward), [&](RankContext& rank) {
    PlainStep plain(rank.model, rank.device, {rank.communicator, rank.world, rank.dp_replicate}, deal(rank.model.options(), markov_rows(64)));
    for (Step step{1}; step.value() <= steps; ++step) {
      const StepNumbers numbers = plain.run(EpochId{1}, step, 1e-2);
      if (rank.rank == 0) result.numbers.push_back(numbers);
    }
    result.states.at(rank.rank) = state_bytes(rank.model);
  });
  return result;
}

class StepInBackward : public testing::TestWithParam<World> {};

TEST_P(StepInBackward, MakesTheSameStateBitForBitAsAStepBehindTheBackwardPass) {
  const Outcome early = run(GetParam(), true), late = run(GetParam(), false);
  EXPECT_EQ(early.states, late.states);
  ASSERT_EQ(early.numbers.size(), late.numbers.size());
  for (std::size_t i = 0; i < early.numbers.size(); ++i) {
    EXPECT_EQ(early.numbers[i].verdict.outcome, VerdictOutcome::commit);
    EXPECT_EQ(early.numbers[i].verdict.mean_loss, late.numbers[i].verdict.mean_loss);
    EXPECT_NEAR(early.numbers[i].verdict.grad_norm / late.numbers[i].verdict.grad_norm, 1.0, 1e-14) << "squares are summed from the last unit on";
  }
}
INSTANTIATE_TEST_SUITE_P(Worlds, StepInBackward,
                         testing::Values(World{1, 1}, World{1, 2}, World{1, 4}, World{2, 1}, World{2, 2}, World{1, 2, 2}, World{1, 1, 1, "tiny_tied"},
                                         World{2, 2, 2, "tiny_tied"}));

// Of a tied pair the owner's gradients stay; of the others two units at a time have a place.
TEST(StepInBackwardMemory, HoldsTheGradientsOfTwoUnitsAndNoMoreThanItPlanned) {
  const auto gradients = [](const char* flavour, bool in_backward) {
    const TrainingEstimate estimate = estimate_training(llama3(flavour), options({1, 1, 1, flavour}, in_backward));
    return std::ranges::find(estimate.memory, "gradient shards", &MemoryItem::kind)->bytes;
  };
  for (const char* flavour : {"tiny", "tiny_tied"}) {
    const TrainingEstimate estimate = estimate_training(llama3(flavour), options({1, 1, 1, flavour}, true));
    std::array<std::size_t, 2> turn{};
    const bool tied = std::string_view(flavour) == "tiny_tied";
    for (std::size_t u = tied ? 1 : 0; u < estimate.units.size(); ++u) turn[u % 2] = std::max(turn[u % 2], estimate.units[u].shard_bytes);
    EXPECT_EQ(gradients(flavour, true), turn[0] + turn[1] + (tied ? estimate.units[0].shard_bytes : 0));
    EXPECT_LT(gradients(flavour, true), gradients(flavour, false));
    on_ranks(llama3(flavour), options({1, 2, 1, flavour}, true), [](RankContext& rank) {
      EXPECT_EQ(rank.model.allocated_bytes(), rank.model.estimate().resident_bytes());
      EXPECT_EQ(rank.device.allocated_bytes(Placement::device), rank.model.device_bytes());
      EXPECT_TRUE(rank.model.gradients().empty());
    });
  }
}

TEST(StepInBackwardMemory, RefusesToReduceWithEachMicroBatch) {
  TrainingOptions each = options({1, 1, 2}, true);
  each.reduce_last = false;
  EXPECT_THROW((void)estimate_training(llama3("tiny"), each), std::invalid_argument);
}

StateTensor tensor(TrainingModel& model, const std::string& name) {
  for (const StateTensor& found : model.state()) {
    if (found.name == name) return found;
  }
  throw std::out_of_range(name);
}
std::vector<float> values(TrainingModel& model, const std::string& name) {
  const StateTensor found = tensor(model, name);
  return {found.view.as<const float>(), found.view.as<const float>() + found.view.shape.elements()};
}

TEST(StepInBackwardVerdict, ALossThatIsNotFiniteKeepsEveryUnitFromBeingWritten) {
  on_ranks(llama3("tiny"), options({1, 2}, true), [](RankContext& rank) {
    PlainStep plain(rank.model, rank.device, rank.communicator, deal(rank.model.options(), markov_rows(64)));
    if (rank.rank == 1) tensor(rank.model, "layers.1.feed_forward.w2.weight").view.as<float>()[0] = std::numeric_limits<float>::quiet_NaN();
    const auto before = state_bytes(rank.model);
    EXPECT_EQ(plain.run(EpochId{1}, Step{1}, 1e-3).verdict.outcome, VerdictOutcome::skip);
    EXPECT_EQ(state_bytes(rank.model), before);
  });
}

// Gradients as no batch would easily make them, reduced and judged as in a step: that of the second block overflows on one rank alone.
TEST(StepInBackwardVerdict, AUnitWhoseGradientsAreNotFiniteIsNotWrittenNorAnyBelowIt) {
  on_ranks(llama3("tiny"), options({1, 2}, true), [](RankContext& rank) {
    const std::array<std::string, 4> of_units{"tok_embeddings.weight", "layers.0.attention.wq.weight", "layers.1.attention.wq.weight", "output.weight"};
    ASSERT_EQ(rank.model.units(), of_units.size());
    std::vector<std::vector<float>> before;
    for (const std::string& name : of_units) before.push_back(values(rank.model, name));
    ShardProgram& shards = rank.model.shards();
    Stream& stream = rank.device.setup_stream();
    std::vector<float> gradients(rank.model.estimate().gradients_slot_bytes() / sizeof(float));
    for (Unit unit{3};; unit = Unit{unit.value() - 1}) {
      std::ranges::fill(gradients, 0.5F);
      if (unit == Unit{2} && rank.rank == 1) gradients.front() = std::numeric_limits<float>::infinity();
      shards.reduce(stream, Micro{0}, unit, std::as_writable_bytes(std::span(gradients)), rank.communicator);
      if (unit == Unit{0}) break;
      shards.unit_verdict(stream, EpochId{1}, Step{1}, unit, rank.world);
      shards.optimize(stream, Step{1}, unit, 1e-3);
    }
    shards.verdict(stream, EpochId{1}, Step{1}, rank.world);
    shards.optimize(stream, Step{1}, Unit{0}, 1e-3);
    rank.device.wait(stream);
    EXPECT_EQ(shards.numbers().verdict.outcome, VerdictOutcome::skip);
    EXPECT_NE(values(rank.model, of_units[3]), before[3]) << "the head was updated before it was known";
    for (std::size_t unit = 0; unit < 3; ++unit) EXPECT_EQ(values(rank.model, of_units[unit]), before[unit]) << of_units[unit];
  });
}

TEST(StepInBackwardVerdict, AHaltedRankWritesNothing) {
  on_ranks(llama3("tiny"), options({1, 2}, true), [](RankContext& rank) {
    PlainStep plain(rank.model, rank.device, rank.communicator, deal(rank.model.options(), markov_rows(64)));
    rank.halt = 1;
    const auto before = state_bytes(rank.model);
    EXPECT_EQ(plain.run(EpochId{1}, Step{1}, 1e-3).verdict.outcome, VerdictOutcome::void_);
    EXPECT_EQ(state_bytes(rank.model), before);
  });
}

}  // namespace
}  // namespace troupe::test
