#pragma once
#include <cstdint>

#include "src/base/result.hpp"
#include "src/config/job_config.hpp"
#include "src/model/model_description.hpp"

namespace troupe {

/// Whether the job's sizes are ones that can be counted and planned at all: no size in bytes wraps round an integer, and the plan of a
/// step has a length that compiles within a minute. Not whether a device holds it. Errors name the sizes, what they come to and the keys. Pure.
[[nodiscard]] Result<void> check_sizes(const JobConfig& config, const ModelDescription& model, const MeshDegrees& mesh);

}  // namespace troupe
