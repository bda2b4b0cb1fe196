#pragma once
#include <cstdint>

#include "src/base/result.hpp"
#include "src/config/job_config.hpp"
#include "src/data/loader.hpp"

/// Which data the ranks of a job see, from its configuration. Pure but for what reads the run's folder.
namespace troupe {

/// Options of the loader of rank `rank` of `world`.
[[nodiscard]] LoaderOptions loader_options(const JobConfig& config, std::uint32_t rank, std::uint32_t world);

/// How the run stands, or stood, at the beginning of a step.
struct DataPosition {
  std::uint32_t world = 1;  ///< ranks, by the run's journal; 1 where there is none
  JobConfig config;         ///< with what epochs of the run have changed
  Step first_step{1};       ///< of the newest checkpoint before the step, or of a later epoch (LoaderOptions)
  std::uint64_t first_row = 0;
};
/// Reads the journal and the checkpoints of job.dump_folder, if there are any. Errors: a manifest that cannot be read.
[[nodiscard]] Result<DataPosition> data_position_at(Step step, const JobConfig& config);

}  // namespace troupe
