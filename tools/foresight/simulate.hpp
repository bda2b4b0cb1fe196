#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/foresight/estimate.hpp"
#include "tools/foresight/simulated_cluster.hpp"

namespace troupe {

/// How a run of this configuration is simulated.
struct SimulationOptions {
  std::uint32_t ranks = 1;
  ClusterModel cluster;
  OperationCosts::Factors factors;  ///< measured by a profile; empty: the roofline as it stands
  std::uint64_t steps = 6;
  std::uint32_t unfolded = 64;  ///< worlds of more ranks are folded
  std::filesystem::path trace;  ///< a timeline file to write; empty: none
  std::uint32_t traced_ranks = 8;
  bool keep_all_spans = false;
  std::function<void(SimulatedJobOptions&)> alter;  ///< tests, and what else is to happen: before it runs
};

/// What a simulated run took.
struct Simulation {
  Estimate estimate;
  std::uint32_t simulated = 1;  ///< ranks; fewer than the run's: the others do the same at the same times
  SimulatedOutcome outcome;
  Step first, last;                                       ///< that were looked at
  double step_seconds = 0;                                ///< mean of those
  double tokens_per_second = 0, mfu = 0, mfu_causal = 0;  ///< of one rank; mfu nan without a peak, as on a CPU
  double compute_busy = 0, communication_busy = 0;        ///< of a step, parts
  TraceOverlap overlap;
  double wall_seconds = 0;  ///< that the simulation took
};

/// The run's own planner, then simulate_job. Blocks. The error is what the planner refuses, or what kept the simulated run from its end.
[[nodiscard]] Result<Simulation> simulate_run(const JobConfig& config, const SimulationOptions& options);
[[nodiscard]] std::string simulation_text(const Simulation& simulation);
[[nodiscard]] std::string simulation_json(const Simulation& simulation);

/// Durations of the estimate's operations, with the corrections of the options.
[[nodiscard]] OperationCosts operation_costs(const Estimate& estimate, const SimulationOptions& options);

/// The simulated job of an estimate; `full` ranks, or as few as show what more would (two of each group).
[[nodiscard]] SimulatedJobOptions simulated_job_of(const Estimate& estimate, const JobConfig& config, const OperationCosts& costs, bool full);

}  // namespace troupe
