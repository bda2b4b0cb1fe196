#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "src/collectives/communicator.hpp"
#include "src/config/job_config.hpp"
#include "src/device/device.hpp"

namespace troupe {

/// The device of one rank: the one place that knows which kinds there are. A device of another kind is a library that implements
/// src/device/device.hpp and is opened here. `local_rank`: the rank's number on its host, which is its GPU's.
/// Throws std::invalid_argument or std::runtime_error for what the device refuses.
[[nodiscard]] std::unique_ptr<Device> open_device(const JobConfig& config, std::uint32_t local_rank);

/// Collectives of `device`'s own memory: `host`, which joins the same ranks, where the host can reach that memory; else a communicator of the
/// device's kind, for which `host` is no more than a way to meet. Blocks until all members have called it.
[[nodiscard]] std::shared_ptr<Communicator> communicator_of(Device& device, const std::string& name, std::shared_ptr<Communicator> host);

}  // namespace troupe
