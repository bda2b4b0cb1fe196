#pragma once
#include <filesystem>

#include "src/base/result.hpp"
#include "src/checkpoint/checkpoint_store.hpp"

namespace troupe {

/// The sealed checkpoint whose folder is `path`: …/step-N. Reads its manifest. The error says what else the path is.
[[nodiscard]] Result<FoundCheckpoint> open_checkpoint_at(const std::filesystem::path& path, Storage& storage);

}  // namespace troupe
