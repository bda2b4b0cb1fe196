#pragma once
#include <string>
#include <vector>

namespace troupe {

/// Goes on as troupe-worker with these arguments, for what needs LibTorch: this program links none. Returns only where that fails, with the exit code, told.
[[nodiscard]] int become_worker(std::vector<std::string> arguments);

}  // namespace troupe
