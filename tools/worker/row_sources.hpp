#pragma once
#include "actors/rank_factory.hpp"
#include "src/data/loader.hpp"
#include "tools/launcher/training_job.hpp"

namespace troupe {

/// What a rank loads in an epoch, wherever its batches come from.
[[nodiscard]] LoaderOptions loader_of_epoch(const JobConfig& config, const EpochStart& start);

/// The job with what tells which source of the blend a row of this rank is of; as it is where there is one source.
[[nodiscard]] TrainingJob with_sources(TrainingJob job, const JobConfig& config, const EpochStart& start);

}  // namespace troupe
