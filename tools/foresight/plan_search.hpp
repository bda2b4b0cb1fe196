#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "tools/foresight/simulate.hpp"

namespace troupe {

/// One way to run a configuration: what was changed of it, and what that gives.
struct PlanCandidate {
  JobConfig config;
  std::int64_t replicate = 1, shard = 1;  ///< of the mesh
  std::string recompute;                  ///< "none", "selective op", "full"
  double roofline_seconds = 0;            ///< of a step
  double step_seconds = 0;                ///< simulated; 0: it was not
  std::size_t device_bytes = 0;
  double tokens_per_second = 0;  ///< of all ranks, simulated
};

struct PlanSearch {
  std::uint32_t ranks = 1;
  std::string device;
  double memory_gib = 0;
  std::size_t looked_at = 0, fitting = 0, simulated = 0;
  std::vector<PlanCandidate> best;  ///< the fastest first; at most ten; empty: nothing fits
  double smallest_gib = 0;          ///< of all that were looked at
};

/// The fastest ways to run this configuration's step (the same rows of a step on all of them) on so many ranks: meshes of replicas and shards,
/// rows of a micro-batch, activation checkpointing, weights gathered again or kept, gradients reduced each micro-batch or with the last, slots.
/// All are estimated; of those that fit, the most promising by their roofline are simulated. Blocks for seconds. The error is what makes any plan impossible.
[[nodiscard]] Result<PlanSearch> search_plans(const JobConfig& config, const SimulationOptions& options);
/// The configuration as a short TOML file: what differs from the defaults.
[[nodiscard]] std::string short_toml(const JobConfig& config);
[[nodiscard]] std::string plan_search_text(const PlanSearch& search);
[[nodiscard]] std::string plan_search_json(const PlanSearch& search);

}  // namespace troupe
