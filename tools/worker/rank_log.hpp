#pragma once
#include <filesystem>
#include <memory>

#include "src/base/ids.hpp"
#include "src/base/log.hpp"

namespace troupe {

struct RankLogOptions {
  Rank rank;
  std::filesystem::path file;  ///< RUN/logs/rank-N.log; empty: console only
  bool shown = false;          ///< its lines go to the console too (metrics.log_ranks)
  bool launched = false;       ///< by troupe: file descriptors 3 and 4 are the launcher's stdout and stderr
};

/// Everything goes to the rank's file; the lines of ranks that are shown, and every rank's warnings and errors, also to the console.
[[nodiscard]] std::unique_ptr<Log> make_rank_log(const RankLogOptions& options);

}  // namespace troupe
