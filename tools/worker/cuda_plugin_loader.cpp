#include "tools/worker/cuda_plugin_loader.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "src/collectives/nccl/cuda_plugin.hpp"

namespace troupe {
namespace {

constexpr int needed_driver = 13000;  ///< CUDA 13.0, which torch 2.11.0+cu130 is built with: driver 580 and newer
constexpr const char* otherwise = "; or train on the CPU with --device cpu";

std::string last_problem() {
  const char* text = ::dlerror();
  return text == nullptr ? "unknown reason" : text;
}

/// What dlopen said, in words about this program.
std::string describe_problem(const std::filesystem::path& file, const std::string& problem) {
  const bool missing = problem.find("cannot open shared object file") != std::string::npos;
  const bool undefined = problem.find("undefined symbol") != std::string::npos;
  if (missing)
    return fmt::format(
        "{} needs a library that is not there ({}): install the Python wheel torch==2.11.0 with the NVIDIA wheels that it asks for, and name its "
        "folder in LIBTORCH (docs/gpu.md){}",
        file.string(), problem, otherwise);
  if (undefined)
    return fmt::format("{} was built for another version of torch or NVIDIA's libraries than this machine's ({}): it needs torch 2.11.0+cu130{}", file.string(),
                       problem, otherwise);
  return fmt::format("{} cannot be loaded: {}{}", file.string(), problem, otherwise);
}

}  // namespace

Result<void> check_cuda_driver(const std::string& library) {
  void* const driver = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr)
    return Error{fmt::format("no NVIDIA driver on this machine ({}): install driver 580 or newer, which brings {}{}", last_problem(), library, otherwise)};
  using GetVersion = int (*)(int*);
  const auto get_version = reinterpret_cast<GetVersion>(::dlsym(driver, "cuDriverGetVersion"));
  int version = 0;
  if (get_version == nullptr || get_version(&version) != 0)
    return Error{fmt::format("{} does not tell its version: reinstall the NVIDIA driver{}", library, otherwise)};
  if (version < needed_driver)
    return Error{fmt::format("the NVIDIA driver is too old: it offers CUDA {}.{}, torch 2.11.0+cu130 needs 13.0, which driver 580 and newer have{}",
                             version / 1000, version % 1000 / 10, otherwise)};
  return {};
}

Result<std::filesystem::path> find_cuda_plugin(const std::filesystem::path& program) {
  if (const char* named = std::getenv("TROUPE_CUDA_PLUGIN"); named != nullptr && *named != '\0') return std::filesystem::path(named);
  const std::filesystem::path folder = program.parent_path();
  for (const std::filesystem::path& place : {folder / "libtroupe_cuda.so", folder.parent_path() / "lib" / "libtroupe_cuda.so"}) {
    std::error_code ignored;
    if (std::filesystem::exists(place, ignored)) return place;
  }
  return Error{fmt::format("no libtroupe_cuda.so beside {} or in {}: this build has no CUDA plug-in (TROUPE_CUDA, docs/gpu.md){}", program.string(),
                           (folder.parent_path() / "lib").string(), otherwise)};
}

std::optional<std::uint32_t> gpus_shown(const char* visible, const std::filesystem::path& devices) {
  if (visible != nullptr) {
    const std::string_view text(visible);
    return text.empty() ? 0 : static_cast<std::uint32_t>(std::ranges::count(text, ',') + 1);
  }
  std::uint32_t count = 0;
  std::error_code problem;
  for (const auto& entry : std::filesystem::directory_iterator(devices, problem)) {
    const std::string name = entry.path().filename();
    count += name.starts_with("nvidia") && name.find_first_not_of("0123456789", 6) == std::string::npos && name.size() > 6 ? 1 : 0;
  }
  return count > 0 ? std::optional(count) : std::nullopt;
}

Result<const CudaPlugin*> load_cuda_plugin(const std::filesystem::path& file, const std::string& driver) {
  if (auto there = check_cuda_driver(driver); !there) return there.error();
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Error{describe_problem(file, last_problem())};
  const auto get = reinterpret_cast<GetCudaPlugin>(::dlsym(library, CudaPlugin::symbol));
  if (get == nullptr) return Error{fmt::format("{} is no plug-in of Troupe: it has no {}", file.string(), CudaPlugin::symbol)};
  const CudaPlugin* const plugin = get();
  if (plugin->interface != CudaPlugin::current_interface)
    return Error{fmt::format("{} is of another version of Troupe (interface {}, this program has {}): install both from one build", file.string(),
                             plugin->interface, CudaPlugin::current_interface)};
  if (const std::string running = plugin->running_torch(); !running.starts_with(plugin->torch))
    return Error{fmt::format("{} was built for torch {}, but torch {} is loaded: name the right one's folder in LIBTORCH (docs/gpu.md){}", file.string(),
                             plugin->torch, running, otherwise)};
  return plugin;
}

Result<const CudaPlugin*> cuda_plugin() {
  static const Result<const CudaPlugin*> loaded = []() -> Result<const CudaPlugin*> {
    std::error_code problem;
    const auto file = find_cuda_plugin(std::filesystem::read_symlink("/proc/self/exe", problem));
    if (!file) return file.error();
    return load_cuda_plugin(*file);
  }();
  return loaded;
}

}  // namespace troupe
