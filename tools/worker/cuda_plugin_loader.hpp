#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "src/base/result.hpp"

namespace troupe {

struct CudaPlugin;

/// Where libtroupe_cuda.so may be: TROUPE_CUDA_PLUGIN, else beside `program` or in the lib folder next to its folder.
[[nodiscard]] Result<std::filesystem::path> find_cuda_plugin(const std::filesystem::path& program);

/// Whether a driver is there, and new enough; asks it for its version and for nothing else. `library`: the driver's, another one in tests.
[[nodiscard]] Result<void> check_cuda_driver(const std::string& library = "libcuda.so.1");

/// GPUs of this host that its processes will see: those that CUDA_VISIBLE_DEVICES (`visible`, null: unset) lists, else the driver's device files. Nothing
/// where there are no such files (a container may hide them): then only CUDA itself can tell.
[[nodiscard]] std::optional<std::uint32_t> gpus_shown(const char* visible, const std::filesystem::path& devices = "/dev");

/// Loads the plug-in, once a process, and never unloads it. Before anything else of torch has run in this process. Each error names in
/// plain words what is missing and what to do: the driver, a newer driver, the plug-in, a library of it, the torch that it was built for.
/// Main thread. `file`: what find_cuda_plugin found; `driver`: the driver's library, another one in tests.
[[nodiscard]] Result<const CudaPlugin*> load_cuda_plugin(const std::filesystem::path& file, const std::string& driver = "libcuda.so.1");

/// The running program's plug-in; loads it at the first call.
[[nodiscard]] Result<const CudaPlugin*> cuda_plugin();

}  // namespace troupe
