#pragma once
#include <memory>

#include "src/config/job_config.hpp"
#include "src/device/device.hpp"

namespace troupe {

/// The device of one rank: the one place that knows which kinds there are. A device of another kind is a library that implements
/// src/device/device.hpp and is opened here. Throws std::invalid_argument for what the device refuses.
[[nodiscard]] std::unique_ptr<Device> open_device(const JobConfig& config);

}  // namespace troupe
