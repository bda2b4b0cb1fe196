#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace troupe {

/// Writes the initial weights as the sealed checkpoint of step 0 into the folder of a run that this process's parent has locked.
/// Returns the exit code; throws what the storage or the model throws.
[[nodiscard]] int write_seed_checkpoint(const std::filesystem::path& config, const std::vector<std::string>& overrides);

}  // namespace troupe
