#pragma once
#include <filesystem>
#include <string>

#include "src/base/result.hpp"

namespace troupe {

struct CudaPlugin;

/// Where libtroupe_cuda.so may be: TROUPE_CUDA_PLUGIN, else beside `program` or in the lib folder next to its folder.
[[nodiscard]] Result<std::filesystem::path> find_cuda_plugin(const std::filesystem::path& program);

/// Loads the plug-in, once a process, and never unloads it. Before anything else of torch has run in this process. Each error names in
/// plain words what is missing and what to do: the driver, a newer driver, the plug-in, a library of it, the torch that it was built for.
/// Main thread. `file`: what find_cuda_plugin found; `driver`: the driver's library, another one in tests.
[[nodiscard]] Result<const CudaPlugin*> load_cuda_plugin(const std::filesystem::path& file, const std::string& driver = "libcuda.so.1");

/// The running program's plug-in; loads it at the first call.
[[nodiscard]] Result<const CudaPlugin*> cuda_plugin();

}  // namespace troupe
