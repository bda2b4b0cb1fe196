#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "tests/support/virtual_world_cluster.hpp"

/// What tests of whole runs that are disturbed have in common, under the virtual clock.
namespace troupe {

/// Of each test; TROUPE_SEEDS sets more, for a long run.
inline std::uint64_t seeds_or(std::uint64_t usual) {
  const char* text = std::getenv("TROUPE_SEEDS");
  return text == nullptr ? usual : std::strtoull(text, nullptr, 10);
}

/// The knobs of a seed with so many steps, and a snapshot in memory every one to three of them or none.
inline FlowKnobs draw_run(std::uint64_t seed, std::uint32_t ranks, std::uint64_t steps) {
  FlowKnobs knobs = draw_knobs(seed, ranks);
  if (knobs.ranks % knobs.replicas != 0) knobs.replicas = 1;
  knobs.steps = steps;
  knobs.keep_every = static_cast<std::uint32_t>(seed % 4);
  knobs.keep = Nanos{static_cast<Nanos::rep>(seed % 7) * 1'000'000};
  if (knobs.overflow_step > 0) knobs.overflow_step = 1 + seed % knobs.steps;
  return knobs;
}

/// The run ended well and told each step once, with the loss, the norm and the data of the undisturbed run: whatever ranks each step ran on.
inline void expect_same_run(const FlowKnobs& knobs, const VirtualCluster& cluster, const VirtualCluster::Result& result, const std::vector<StepRecord>& whole) {
  EXPECT_EQ(result.flow.findings, "") << describe(knobs);
  ASSERT_TRUE(result.end) << describe(knobs) << "\n" << result.flow.end.report;
  EXPECT_TRUE(result.end->ok) << describe(knobs) << "\n" << result.end->cause;
  EXPECT_TRUE(result.stuck.empty()) << describe(knobs);
  EXPECT_EQ(cluster.open_operations(), 0) << describe(knobs);
  ASSERT_EQ(result.steps.size(), whole.size()) << describe(knobs);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    EXPECT_EQ(result.steps[i].step, Step{i + 1}) << describe(knobs);
    EXPECT_EQ(result.steps[i].common.loss, whole[i].common.loss) << describe(knobs);
    EXPECT_EQ(result.steps[i].common.grad_norm, whole[i].common.grad_norm) << describe(knobs);
    EXPECT_EQ(result.steps[i].common.outcome, whole[i].common.outcome) << describe(knobs);
    EXPECT_EQ(result.steps[i].common.digest, whole[i].common.digest) << describe(knobs) << ", step " << i + 1;
    EXPECT_EQ(result.steps[i].total_tokens, whole[i].total_tokens) << describe(knobs);
  }
}

inline void kill_at(VirtualCluster& cluster, Nanos moment, std::uint32_t victim, Nanos notice = Nanos{1'000'000}) {
  cluster.world().clock().at(moment, [&cluster, victim, notice] { cluster.kill(victim, notice); });
}

}  // namespace troupe
