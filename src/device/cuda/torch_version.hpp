#pragma once
#include <string>

namespace troupe::cuda {

/// "2.11.0": of the headers that the plug-in was compiled with.
extern const char* const built_with_torch;
/// Of the library in this process; asks torch for CUDA, so never before libtorch_cuda is loaded.
[[nodiscard]] std::string running_torch();

}  // namespace troupe::cuda
