#pragma once
#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "src/base/result.hpp"

namespace troupe {

/// Timelines that a live run has just written for whoever looks at it; deleted with this. One thread.
class LiveTraces {
 public:
  LiveTraces() = default;
  LiveTraces(const LiveTraces&) = delete;
  LiveTraces& operator=(const LiveTraces&) = delete;
  ~LiveTraces();

  /// Asks the run (live_requests.hpp: JSON to JSON) and waits for its files, at most `patience`: those that have come, see missing(). The error is
  /// the run's.
  [[nodiscard]] Result<std::vector<std::filesystem::path>> record(const std::function<std::string(const std::string& request)>& ask,
                                                                  std::chrono::milliseconds patience);
  /// Files that did not come: their processes are stopped, dead or not ready. "rank-1.json, rank-3.json".
  [[nodiscard]] const std::string& missing() const noexcept { return missing_; }

 private:
  std::filesystem::path folder_;
  std::string missing_;
};

}  // namespace troupe
