#pragma once
#include <cstdint>
#include <string>

#include "src/base/result.hpp"
#include "src/config/job_config.hpp"
#include "src/model/model_description.hpp"
#include "src/model/training_model.hpp"
#include "src/plan/compiler.hpp"
#include "src/runtime/edge_memory.hpp"
#include "tools/launcher/job_data.hpp"

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
/// holds the plan where no limit is given; 0: none known. `evaluation_batches`: of the validation set on each rank
/// (LoaderOptions::micro_batches); 0: nothing is evaluated. Errors name keys, units or the edge that would wait for ever.
[[nodiscard]] Result<TrainingJob> plan_training(const JobConfig& config, std::uint32_t rank, std::uint32_t world, std::size_t device_memory = 0,
                                                std::uint32_t evaluation_batches = 0);

/// The larger of the batches of training and validation: what a slot of `batches` holds.
[[nodiscard]] inline BatchLayout largest_batch(const TrainingOptions& options) {
  return options.evaluation.bytes() > options.batch.bytes() ? options.evaluation : options.batch;
}

/// The memory of the job's edges.
[[nodiscard]] EdgeLayout edges_of(const TrainingJob& job, const TrainingEstimate& estimate, std::size_t snapshot_bytes = 0);

}  // namespace troupe
