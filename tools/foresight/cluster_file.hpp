#pragma once
#include <filesystem>
#include <string>

#include "src/base/result.hpp"
#include "src/simulation/cluster_model.hpp"

namespace troupe {

/// `device` in its usual hosts, with what the TOML file (sections [device], [network], [recovery]; may be empty) replaces. The error holds one
/// line for each problem: file, line and column, what was written, what was expected.
[[nodiscard]] Result<ClusterModel> load_cluster(const std::string& device, const std::filesystem::path& file);
/// All keys of such a file, with this model's values and what each means.
[[nodiscard]] std::string cluster_toml(ClusterModel cluster);

}  // namespace troupe
