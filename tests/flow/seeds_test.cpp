#include <gtest/gtest.h>

#include <set>

#include "tests/support/virtual_world_job.hpp"

namespace troupe {
namespace {

/// Whole steps of so many ranks for each seed, twice. Returns the order hashes.
std::set<std::uint64_t> run_seeds(std::uint64_t first, std::uint64_t count, std::uint32_t ranks) {
  std::set<std::uint64_t> orders;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const FlowKnobs knobs = draw_knobs(seed, ranks);
    const FlowResult result = run_twice(knobs);
    EXPECT_EQ(result.findings, "") << describe(knobs);
    EXPECT_EQ(result.fault, "") << describe(knobs);
    EXPECT_EQ(result.reported, Step{knobs.steps}) << describe(knobs);
    EXPECT_GT(result.accesses, 0U);
    orders.insert(result.order_hash);
    if (::testing::Test::HasFailure()) break;
  }
  return orders;
}

TEST(Seeds, EveryInvariantHoldsForOneRank) { EXPECT_GE(run_seeds(1, 400, 1).size(), 380U); }
TEST(Seeds, EveryInvariantHoldsForTwoRanks) { EXPECT_GE(run_seeds(1001, 400, 2).size(), 380U); }
TEST(Seeds, EveryInvariantHoldsForFourRanks) { EXPECT_GE(run_seeds(2001, 300, 4).size(), 290U); }

TEST(Seeds, EveryInvariantHoldsForEveryMeshOfEightRanksAndEveryPlan) {
  std::uint64_t seed = 3001;
  for (const std::uint32_t replicas : {1U, 2U, 4U, 8U}) {
    for (const bool reduce_last : {false, true}) {
      for (const bool resident : {false, true}) {
        FlowKnobs knobs = draw_knobs(seed++, 8);
        knobs.replicas = replicas;
        knobs.reduce_last = reduce_last;
        knobs.weights_resident = resident;
        knobs.micro_batches = 2;
        knobs.step_in_backward = reduce_last;
        if (resident) knobs.slots.weights = knobs.layers;
        const FlowResult result = run_twice(knobs);
        EXPECT_EQ(result.findings, "") << describe(knobs);
        EXPECT_EQ(result.reported, Step{knobs.steps}) << describe(knobs);
      }
    }
  }
}

TEST(Seeds, InterleavingsOfTheSameKnobsDiffer) {
  std::set<std::uint64_t> orders;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    FlowKnobs knobs = draw_knobs(5, 2);
    knobs.seed = seed;
    knobs.jitter = 0;
    VirtualJob job(knobs);
    const FlowResult result = job.run();
    EXPECT_EQ(result.findings, "") << describe(knobs);
    orders.insert(result.order_hash);
  }
  EXPECT_GE(orders.size(), 28U);
}

}  // namespace
}  // namespace troupe
