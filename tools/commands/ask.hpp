#pragma once
#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "src/base/result.hpp"

namespace troupe {

/// Asks the live run in a folder one thing (tools/launcher/live_requests.hpp) and returns its answer, at most five seconds later. Errors name
/// the folder and what was found instead of a live run, or are what the run said.
[[nodiscard]] Result<nlohmann::json> ask(const std::filesystem::path& run, const nlohmann::json& request);

}  // namespace troupe
