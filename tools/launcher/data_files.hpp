#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "src/config/job_config.hpp"

namespace troupe {

/// Compares the files of the data with those of the run's last start, kept in RUN/index/files.json, and keeps those of now.
/// Returns what the user should know when a run goes on: rows after the checkpoint are then not those that it would have seen.
/// Nothing where the files cannot be seen from this host, or none are known. Reads names, sizes and times, no data.
[[nodiscard]] std::vector<std::string> compare_data_files(const JobConfig& config, const std::filesystem::path& run_folder, bool goes_on);

}  // namespace troupe
