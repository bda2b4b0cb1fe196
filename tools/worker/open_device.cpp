#include "tools/worker/open_device.hpp"

namespace troupe {

std::unique_ptr<Device> open_device(const JobConfig& config) { return make_cpu_device(static_cast<int>(config.runtime.threads_per_rank)); }

}  // namespace troupe
