#pragma once
#include "src/base/result.hpp"
#include "src/config/job_config.hpp"

namespace troupe {

/// Loads the library of `job.custom_import`, if any, and lets it add to this configuration: its families and losses, and its data sets by
/// their form and files. Call after JobConfig::load and before anything is planned. The error names the library and what it lacks: the file,
/// a symbol, another version, compiler or layout; or a name of model.name, training.loss or training.dataset that nobody has.
[[nodiscard]] Result<void> load_extension(JobConfig& config);
/// The same for what JobConfig::load or ::parse gave.
[[nodiscard]] Result<JobConfig> with_extension(Result<JobConfig> config);

}  // namespace troupe
