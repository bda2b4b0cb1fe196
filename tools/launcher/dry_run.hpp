#pragma once
#include <cstdint>
#include <string>

#include "src/base/result.hpp"
#include "src/config/job_config.hpp"
#include "tools/launcher/training_job.hpp"

namespace troupe {

/// What a run of `world_size` ranks would be: what of the configuration would be refused, mesh, memory of a rank by kind and by edge, and the
/// plan of a step as a table: each operation with its lane, what it waits for, the slot that it takes and the letters that leave when it is
/// done. Nothing is started, read or allocated. Where layers of parallelism are asked for that are not built, all ranks are taken as sharding
/// the model, and that is said. The error is what makes any plan impossible.
[[nodiscard]] Result<std::string> describe_dry_run(const JobConfig& config, std::uint32_t world_size);

/// The letters that leave when the operation is done, with sender and receiver: "GradientReady compute → sharding". Empty: none but the
/// poster's own.
[[nodiscard]] std::string letters_after(const Plan& plan, OperationIndex operation);

}  // namespace troupe
