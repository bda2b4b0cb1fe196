#include "tools/worker/open_device.hpp"

#include <stdexcept>

#include "src/collectives/nccl/cuda_plugin.hpp"
#include "tools/worker/cuda_plugin_loader.hpp"

namespace troupe {
namespace {

const CudaPlugin& loaded_plugin() {
  const auto plugin = cuda_plugin();
  if (!plugin) throw std::runtime_error("runtime.device = \"cuda\": " + plugin.error().message);
  return **plugin;
}

}  // namespace

std::unique_ptr<Device> open_device(const JobConfig& config, std::uint32_t local_rank) {
  if (config.runtime.device == "cpu") return make_cpu_device(static_cast<int>(config.runtime.threads_per_rank));
  cuda::CudaOptions options;
  options.index = static_cast<std::int16_t>(local_rank);
  options.deterministic = config.debug.deterministic.value_or(false);
  options.run_ahead = static_cast<std::uint32_t>(config.runtime.run_ahead);
  return loaded_plugin().open_device(options);
}

std::shared_ptr<Communicator> communicator_of(Device& device, const std::string& name, std::shared_ptr<Communicator> host) {
  if (device.host_visible()) return host;
  return loaded_plugin().open_communicator(name, device, *host);
}

}  // namespace troupe
