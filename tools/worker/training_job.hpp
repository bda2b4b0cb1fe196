#pragma once
#include <cstdint>
#include <string>

#include "src/base/result.hpp"
#include "src/config/job_config.hpp"
#include "src/data/loader.hpp"
#include "src/model/model_description.hpp"
#include "src/model/training_model.hpp"
#include "src/plan/compiler.hpp"

/// From the configuration to what a rank's parts are made with. Pure.
namespace troupe {

struct TrainingJob {
  ModelDescription model;
  TrainingOptions options;  ///< of this rank
  SlotCounts slots;
  PlanShape shape;  ///< of one rank's step; the same on all
  PlanSet plans;    ///< checked for all ranks together
};

/// What rank `rank` of `world` trains. Errors name keys, units or the edge that would wait for ever.
[[nodiscard]] Result<TrainingJob> plan_training(const JobConfig& config, std::uint32_t rank, std::uint32_t world);

/// Options of the loader of rank `rank` of `world`.
[[nodiscard]] LoaderOptions loader_options(const JobConfig& config, std::uint32_t rank, std::uint32_t world);

}  // namespace troupe
