#pragma once
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "src/checkpoint/export_hugging_face.hpp"
#include "src/checkpoint/restore_point.hpp"
#include "src/checkpoint/tensor_names.hpp"
#include "src/config/job_config.hpp"

namespace troupe {

/// The table that turns names of this run's state into those of `tensors`; the error says that the family has none.
[[nodiscard]] Result<ForeignNames> foreign_names(const JobConfig& config, const ForeignTensors& tensors);

/// Before any worker starts: whether the folder that `point` names fits the configured model. Hugging Face's config.json is compared with
/// [model], each difference named, with the section that fits; then every tensor by name, shape and type. `warnings`: what was not
/// compared or is not taken along. Blocks.
[[nodiscard]] Result<void> check_foreign_start(const JobConfig& config, const RestorePoint& point, Storage& storage, std::vector<std::string>& warnings);

/// What config.json of an export of this run's weights says, and where its tokenizer files come from: Hugging Face's folder that the run
/// began from, if there is one. Blocks.
[[nodiscard]] Result<ExportPlan> plan_export(const JobConfig& config, Storage& storage);

}  // namespace troupe
