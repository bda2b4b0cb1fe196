#pragma once
#include <cstdint>
#include <string>

#include "src/base/result.hpp"
#include "src/config/job_config.hpp"
#include "src/data/loader.hpp"
#include "src/model/model_description.hpp"
#include "src/model/training_model.hpp"
#include "src/plan/compiler.hpp"
#include "src/runtime/edge_memory.hpp"

/// From the configuration to what a rank's parts are made with. Pure.
namespace troupe {

struct TrainingJob {
  ModelDescription model;
  TrainingOptions options;  ///< of this rank
  SlotCounts slots;
  PlanShape shape;  ///< of one rank's step; the same on all
  PlanSet plans;    ///< checked for all ranks together
};

/// What rank `rank` of `world` trains. `device_memory`: bytes that the device has of its own, to which activation_checkpoint.mode = "auto"
/// holds the plan where no limit is given; 0: none known. Errors name keys, units or the edge that would wait for ever.
[[nodiscard]] Result<TrainingJob> plan_training(const JobConfig& config, std::uint32_t rank, std::uint32_t world, std::size_t device_memory = 0);

/// The memory of the job's edges.
[[nodiscard]] EdgeLayout edges_of(const TrainingJob& job, const TrainingEstimate& estimate, std::size_t snapshot_bytes = 0);

/// Options of the loader of rank `rank` of `world`.
[[nodiscard]] LoaderOptions loader_options(const JobConfig& config, std::uint32_t rank, std::uint32_t world);

}  // namespace troupe
