#pragma once
#include <filesystem>
#include <memory>

#include "src/base/ids.hpp"
#include "src/base/log.hpp"

namespace troupe {

struct RankLogOptions {
  Rank rank;
  std::filesystem::path file;  ///< RUN/logs/rank-N.log; empty: console only
  bool launched = false;       ///< by troupe: file descriptors 3 and 4 are the launcher's stdout and stderr
};

/// Everything goes to the rank's file; rank 0's lines and every rank's warnings and errors also to the console.
[[nodiscard]] std::unique_ptr<Log> make_rank_log(const RankLogOptions& options);

}  // namespace troupe
