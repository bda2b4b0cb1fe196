#include "src/device/cuda/torch_version.hpp"

#include <ATen/Version.h>
#include <torch/headeronly/version.h>

namespace troupe::cuda {

const char* const built_with_torch = TORCH_VERSION;

std::string running_torch() {
  const std::string all = at::show_config();  // "…, TORCH_VERSION=2.11.0, …": the library's own word
  const std::string key = "TORCH_VERSION=";
  const std::size_t at = all.find(key);
  if (at == std::string::npos) return "unknown";
  const std::size_t begin = at + key.size();
  return all.substr(begin, all.find_first_of(", \n", begin) - begin);
}

}  // namespace troupe::cuda
