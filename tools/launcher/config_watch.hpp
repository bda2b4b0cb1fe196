#pragma once
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "src/config/job_config.hpp"

namespace troupe {

/// The configuration's file of a run that is going on: what is edited in it. One thread.
class ConfigWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;
  /// `file` as it was read, with `overrides`, which stay above it: `config`.
  ConfigWatch(std::filesystem::path file, std::vector<std::string> overrides, const JobConfig& config);
  /// What was edited since the last look, as "key=value"; nothing: the file has not been touched, or no value differs. The error names file, line
  /// and reason where the file cannot be read or a key cannot be changed in a live run: then none of it is to be.
  /// A file that was touched is read once it has stayed as it is for `settles`: while an editor writes it anew, a part of it may be there.
  [[nodiscard]] std::optional<Result<std::vector<std::string>>> look(Time now = std::chrono::steady_clock::now());
  static constexpr std::chrono::milliseconds settles{300};

 private:
  struct Stamp {
    std::int64_t seconds = 0, nanoseconds = 0, size = -1;
    std::uint64_t inode = 0;
    bool operator==(const Stamp&) const = default;
  };
  [[nodiscard]] Stamp stamp() const;

  std::filesystem::path file_;
  std::vector<std::string> overrides_;
  JobConfig before_;
  Stamp stamp_, touched_;  ///< of what was read, and of what was found at the last look
  Time touched_at_;
};

/// "key=value", as on a command line, of every key in which the second differs from the first.
[[nodiscard]] std::vector<std::string> edits_between(const JobConfig& before, const JobConfig& now);

}  // namespace troupe
