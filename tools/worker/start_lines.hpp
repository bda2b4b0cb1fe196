#pragma once
#include <cstdint>

#include "src/base/log.hpp"
#include "src/config/job_config.hpp"
#include "src/device/device.hpp"
#include "src/model/training_model.hpp"
#include "src/runtime/edge_memory.hpp"
#include "tools/launcher/training_job.hpp"

namespace troupe {

/// What a run is, before its first step, in torchtitan's order: model and parameters, precision, mesh, plan, memory of each kind and edge;
/// then the lines that its users look for, in its words. `first`: the first step to come.
void tell_start(Log& log, const JobConfig& config, const TrainingJob& job, const TrainingModel& model, const EdgeLayout& edges, const DeviceInfo& device,
                Step first, std::uint32_t world_size);

/// Before step one, all but the slots allocated: how much of the device will be in use at most; the rank's last line says how much it was. A device that
/// cannot tell what is in use (a CPU) gets no line.
void tell_predicted_memory(Log& log, const Device& device, const TrainingModel& model, const EdgeLayout& edges);

}  // namespace troupe
