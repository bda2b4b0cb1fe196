#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <mutex>
#include <ostream>
#include <span>

#include "tests/model/ranks.hpp"

namespace troupe::test {
namespace {

/// 37 rows of vocabulary and 3 heads' worth of width: nothing that is sharded divides by 2 or 4 evenly everywhere.
ModelDescription awkward() {
  Llama3Flavour flavour = llama3_flavour("tiny").value();
  flavour.vocab_size = 37;
  flavour.dim = 36;
  flavour.heads = 6;
  flavour.kv_heads = 3;
  flavour.ffn_hidden = 50;
  return describe_llama3(flavour);
}

TrainingOptions options(std::uint32_t world, std::uint32_t micro_batches = 1) {
  TrainingOptions o;
  o.batch = {4 / world / micro_batches, 24};
  o.micro_batches = micro_batches;
  o.world = world;
  return o;
}

void expect_same(const std::vector<StepNumbers>& found, const std::vector<StepNumbers>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].verdict.outcome, VerdictOutcome::commit) << "step " << i + 1;
    EXPECT_NEAR(found[i].verdict.mean_loss / expected[i].verdict.mean_loss, 1.0, 1e-5) << "step " << i + 1;
    EXPECT_NEAR(found[i].verdict.grad_norm / expected[i].verdict.grad_norm, 1.0, 1e-5) << "step " << i + 1;
  }
}

TEST(Parallel, OneRankLearns) {
  const auto numbers = train(awkward(), options(1), markov_rows(37), 20, 1e-2);
  EXPECT_NEAR(numbers.front().verdict.mean_loss, std::log(37.0) + 0.5, 0.5);
  EXPECT_LT(numbers.back().verdict.mean_loss, numbers.front().verdict.mean_loss - 0.3);
}

TEST(Parallel, TwoAndFourRanksRepeatTheLossesAndNormsOfOne) {
  const auto one = train(awkward(), options(1), markov_rows(37), 20, 1e-3);
  expect_same(train(awkward(), options(2), markov_rows(37), 20, 1e-3), one);
  expect_same(train(awkward(), options(4), markov_rows(37), 20, 1e-3), one);
}

/// A way to cut the same 24 rows a step.
struct Cut {
  std::uint32_t replicas, shards, rows, micro_batches;
  bool reduce_last = false;
};
void PrintTo(const Cut& cut, std::ostream* out) {
  *out << cut.replicas << " x " << cut.shards << " ranks, " << cut.micro_batches << " micro-batches of " << cut.rows
       << (cut.reduce_last ? ", reduced last" : "");
}
TrainingOptions options(const Cut& cut) {
  TrainingOptions o;
  o.batch = {cut.rows, 12};
  o.micro_batches = cut.micro_batches;
  o.world = cut.shards;
  o.replicas = cut.replicas;
  o.reduce_last = cut.reduce_last;
  return o;
}

class Cuts : public testing::TestWithParam<Cut> {
 protected:
  static const std::vector<StepNumbers>& one_rank() {
    static const std::vector<StepNumbers> numbers = train(awkward(), options(Cut{1, 1, 24, 1}), markov_rows(37), 20, 1e-3);
    return numbers;
  }
};
TEST_P(Cuts, GiveTheLossesAndNormsOfOneRank) { expect_same(train(awkward(), options(GetParam()), markov_rows(37), 20, 1e-3), one_rank()); }
INSTANTIATE_TEST_SUITE_P(Sharded, Cuts, testing::Values(Cut{1, 2, 12, 1}, Cut{1, 3, 4, 2}, Cut{1, 4, 2, 3}, Cut{1, 8, 1, 3}));
INSTANTIATE_TEST_SUITE_P(Replicated, Cuts, testing::Values(Cut{2, 1, 4, 3}, Cut{3, 1, 8, 1}, Cut{4, 1, 6, 1}, Cut{8, 1, 1, 3}));
INSTANTIATE_TEST_SUITE_P(ShardedAndReplicated, Cuts, testing::Values(Cut{2, 2, 2, 3}, Cut{2, 4, 3, 1}, Cut{4, 2, 1, 3}, Cut{3, 2, 2, 2}));
INSTANTIATE_TEST_SUITE_P(ReducedLast, Cuts, testing::Values(Cut{1, 1, 4, 6, true}, Cut{1, 3, 2, 4, true}, Cut{4, 1, 2, 3, true}, Cut{2, 2, 2, 3, true}));

// Rows 7 to 11 or 23 of the step are padding: they are no tokens, and the mean is over those that are there.
TEST(Parallel, RowsThatDoNotDivideAreAllTrainedOnOnceWhateverTheRanks) {
  const auto rows = [](const Cut& cut) {
    TrainingOptions o = options(cut);
    o.nominal_tokens = 7 * 12;
    return train(awkward(), o, markov_rows(37), 20, 1e-3, 7);
  };
  const auto one = rows({1, 1, 7, 1});
  for (const Cut& cut : {Cut{1, 1, 2, 4}, Cut{1, 2, 4, 1}, Cut{1, 3, 3, 1}, Cut{2, 2, 1, 2}, Cut{1, 8, 1, 1}, Cut{2, 4, 3, 1, true}}) {
    SCOPED_TRACE(testing::PrintToString(cut));
    const auto found = rows(cut);
    EXPECT_EQ(found.front().verdict.tokens, 7 * 12);
    expect_same(found, one);
  }
}

// B055: what an earlier micro-batch left in one replica counts in all of them.
TEST(Parallel, ReplicasHoldTheSameBitsAfterEveryStep) {
  for (const bool reduce_last : {false, true}) {
    std::array<std::vector<std::byte>, 4> states;
    on_ranks(awkward(), options(Cut{2, 2, 1, 3, reduce_last}), [&](RankContext& rank) {
      PlainStep plain(rank.model, rank.device, {rank.communicator, rank.world, rank.dp_replicate}, deal(rank.model.options(), markov_rows(37)));
      for (Step step{1}; step.value() <= 3; ++step) EXPECT_EQ(plain.run(EpochId{1}, step, 1e-3).verdict.outcome, VerdictOutcome::commit);
      states.at(rank.rank) = state_bytes(rank.model);
    });
    EXPECT_EQ(states[0], states[2]);
    EXPECT_EQ(states[1], states[3]);
    EXPECT_NE(states[0], states[1]);
  }
}

TEST(Parallel, OffloadedStateLiesInHostMemoryAndChangesNothing) {
  const auto on_device = train(awkward(), options(1), markov_rows(37), 3, 1e-3);
  TrainingOptions o = options(1);
  o.offload = true;
  const auto offloaded = train(awkward(), o, markov_rows(37), 3, 1e-3);
  for (std::size_t i = 0; i < on_device.size(); ++i) EXPECT_EQ(offloaded[i].verdict.grad_norm, on_device[i].verdict.grad_norm);
  on_ranks(awkward(), o, [](RankContext& rank) {
    std::size_t state = 0;
    for (const MemoryItem& item : rank.model.estimate().memory)
      if (item.kind == "fp32 masters" || item.kind == "optimizer moments") state += item.bytes;
    EXPECT_GE(rank.device.allocated_bytes(Placement::host), state);
    EXPECT_EQ(rank.device.allocated_bytes(Placement::device), rank.model.device_bytes());
  });
}

TEST(Parallel, TiedEmbeddingsSumTheGradientsOfBothUnitsOnAnyNumberOfRanks) {
  const auto one = train(llama3("tiny_tied"), options(1), markov_rows(64), 10, 1e-3);
  expect_same(train(llama3("tiny_tied"), options(2), markov_rows(64), 10, 1e-3), one);
  expect_same(train(llama3("tiny_tied"), options(1, 2), markov_rows(64), 10, 1e-3), one);
  TrainingOptions replicated = options(4);
  replicated.world = replicated.replicas = 2;
  expect_same(train(llama3("tiny_tied"), replicated, markov_rows(64), 10, 1e-3), one);
  TrainingOptions last = options(1, 4);
  last.reduce_last = true;
  expect_same(train(llama3("tiny_tied"), last, markov_rows(64), 10, 1e-3), one);
}

TEST(Parallel, RecomputedBlocksGiveTheSameBitsInLessMemory) {
  TrainingOptions recomputed = options(1);
  recomputed.recompute = Recompute::full;
  const auto saved = train(awkward(), options(1), markov_rows(37), 5, 1e-3);
  const auto again = train(awkward(), recomputed, markov_rows(37), 5, 1e-3);
  for (std::size_t i = 0; i < saved.size(); ++i) {
    EXPECT_EQ(saved[i].verdict.mean_loss, again[i].verdict.mean_loss);
    EXPECT_EQ(saved[i].verdict.grad_norm, again[i].verdict.grad_norm);
  }
  EXPECT_LT(estimate_training(awkward(), recomputed).tapes.arena_bytes, estimate_training(awkward(), options(1)).tapes.arena_bytes);
}

// B071: a value is a function of the seed, the parameter's name and its place in the whole, so no cut and no replica shows.
TEST(Parallel, TheInitialWeightsOfAnyMeshAreThoseOfOneRankAndNoTwoLayersAreAlike) {
  using Whole = std::map<std::string, std::vector<float>>;
  const auto initial = [](std::uint32_t replicas, std::uint32_t shards) {
    Whole whole;
    std::mutex mutex;
    on_ranks(awkward(), options(Cut{replicas, shards, 1, 1}), [&](RankContext& rank) {
      const std::lock_guard lock(mutex);
      for (const StateTensor& tensor : rank.model.state()) {
        if (!tensor.model || tensor.rows == 0) continue;
        auto& values = whole[tensor.name];
        values.resize(static_cast<std::size_t>(tensor.global_shape.elements()));
        const auto row = static_cast<std::size_t>(tensor.global_shape.elements() / tensor.global_shape[0]);
        const std::span own(tensor.view.as<float>(), static_cast<std::size_t>(tensor.rows) * row);
        const auto place = std::span(values).subspan(static_cast<std::size_t>(tensor.first_row) * row, own.size());
        const bool fresh = std::ranges::all_of(place, [](float value) { return value == 0; });
        EXPECT_TRUE(fresh || std::ranges::equal(place, own)) << tensor.name << " differs between replicas";
        std::ranges::copy(own, place.begin());
      }
    });
    return whole;
  };
  const Whole one = initial(1, 1);
  EXPECT_EQ(initial(1, 3), one);
  EXPECT_EQ(initial(2, 2), one);
  EXPECT_NE(one.at("layers.0.attention.wq.weight"), one.at("layers.1.attention.wq.weight"));
}

// B076
TEST(Parallel, TiedEmbeddingsAreOneTensorOfTheState) {
  on_ranks(llama3("tiny_tied"), options(2), [](RankContext& rank) {
    std::vector<std::string> names;
    for (const StateTensor& tensor : rank.model.state()) names.push_back(tensor.name);
    EXPECT_EQ(std::ranges::count_if(names, [](const std::string& name) { return name.find("output.weight") != std::string::npos; }), 0);
    EXPECT_EQ(std::ranges::count(names, "optimizer.exp_avg.tok_embeddings.weight"), 1);
  });
}

/// Losses, norms and the whole state after three steps of two ranks.
struct Trained {
  std::vector<double> numbers;
  std::vector<std::byte> state;
  std::size_t arena = 0;
};
Trained train_with(const RecomputePolicy& policy, bool float8) {
  TrainingOptions o;
  o.batch = {2, 32};
  o.world = 2;
  o.recompute = policy;
  if (float8) {
    o.compute = DType::bf16;
    o.float8 = {.enable = true, .filter_fqns = {"output", "wo"}, .all_gather = true};
  }
  Llama3Flavour flavour = llama3_flavour("tiny").value();
  flavour.layers = 4;
  Trained trained;
  on_ranks(describe_llama3(flavour), o, [&](RankContext& rank) {
    PlainStep plain(rank.model, rank.device, rank.communicator, deal(rank.model.options(), markov_rows(64)));
    for (Step step{1}; step.value() <= 3; ++step) {
      const Verdict verdict = plain.run(EpochId{1}, step, 1e-2).verdict;
      if (rank.rank == 0) trained.numbers.insert(trained.numbers.end(), {verdict.mean_loss, verdict.grad_norm});
    }
    if (rank.rank != 0) return;
    trained.state = state_bytes(rank.model);
    trained.arena = rank.model.estimate().tapes.arena_bytes;
  });
  return trained;
}

TEST(Parallel, WhateverBlocksComputeAgainEveryBitOfTheRunIsTheSame) {
  for (const bool float8 : {false, true}) {
    const Trained none = train_with(Recompute::none, float8);
    RecomputePolicy shapes = Recompute::operations, tight = Recompute::budget, within = Recompute::automatic;
    shapes.always_again = {"attention.wq"};
    tight.memory_budget = 0.2;
    within.arena_limit = none.arena * 2 / 3;
    for (const RecomputePolicy& policy : {RecomputePolicy(Recompute::full), RecomputePolicy(Recompute::every), RecomputePolicy(Recompute::operations), shapes,
                                          RecomputePolicy(Recompute::budget), tight, within}) {
      SCOPED_TRACE(static_cast<int>(policy.mode));
      const Trained again = train_with(policy, float8);
      EXPECT_EQ(again.numbers, none.numbers);
      EXPECT_EQ(again.state, none.state);
      EXPECT_LT(again.arena, none.arena);
    }
  }
}

}  // namespace
}  // namespace troupe::test
