#include "tools/commands/check_device.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "tools/commands/commands.hpp"
#include "tools/worker/cuda_plugin_loader.hpp"

namespace troupe {

Result<void> check_device(const JobConfig& config, std::uint32_t processes, std::uint32_t ranks_in_process) {
  if (config.runtime.device != "cuda") return {};
  const auto refuse = [](const std::string& why) { return Error{"runtime.device = \"cuda\": " + why}; };
  if (ranks_in_process > 1)
    return refuse(
        fmt::format("each GPU needs a process of its own, but --ranks-in-process {} was given: start with --nproc {}", ranks_in_process, ranks_in_process));
  const auto plugin = find_cuda_plugin(worker_program());
  if (!plugin) return refuse(plugin.error().message);
  std::error_code problem;
  if (!std::filesystem::exists(*plugin, problem)) return refuse(fmt::format("{} is not there (TROUPE_CUDA_PLUGIN names it)", plugin->string()));
  if (auto driver = check_cuda_driver(); !driver) return refuse(driver.error().message);
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (const auto gpus = gpus_shown(visible); gpus && processes > *gpus)
    return refuse(fmt::format("--nproc {}, but this host shows {} GPU{} ({}): at most one rank a GPU", processes, *gpus, *gpus == 1 ? "" : "s",
                              visible != nullptr ? fmt::format("CUDA_VISIBLE_DEVICES = \"{}\"", visible) : "/dev/nvidia*"));
  return {};
}

}  // namespace troupe
