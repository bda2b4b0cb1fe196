#pragma once
#include <poll.h>

#include <chrono>
#include <cstddef>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "actors/supervisor.hpp"
#include "tools/launcher/socket.hpp"

namespace troupe {

/// What the other threads tell the main thread.
class Notices final : public RankEvents {
 public:
  void ended(Rank rank, const std::string& cause) override {
    const std::lock_guard lock(mutex_);
    ended_.insert(rank);
    if (!cause.empty()) cause_ = cause;
    bell_.ring();
  }
  void stuck(Rank, const std::string& cause) override { give_up(cause); }
  void give_up(const std::string& cause) {
    const std::lock_guard lock(mutex_);
    if (!gone_) gone_ = cause;
    bell_.ring();
  }
  [[nodiscard]] std::size_t ended() const {
    const std::lock_guard lock(mutex_);
    return ended_.size();
  }
  [[nodiscard]] std::string cause() const {
    const std::lock_guard lock(mutex_);
    return cause_;
  }
  [[nodiscard]] std::optional<std::string> gone() const {
    const std::lock_guard lock(mutex_);
    return gone_;
  }
  /// Blocks until so many ranks have ended, at most `limit`. For whoever hears that the job is gone: its Coordinator may have heard of the ranks' end
  /// before they have told it here.
  [[nodiscard]] bool all_end_within(std::chrono::milliseconds limit, std::size_t ranks) const {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    while (ended() < ranks) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
      if (left <= 0) return false;
      pollfd waiting{bell_.get(), POLLIN, 0};
      ::poll(&waiting, 1, static_cast<int>(left));
      bell_.silence();
    }
    return true;
  }
  [[nodiscard]] const Bell& bell() const noexcept { return bell_; }

 private:
  mutable std::mutex mutex_;
  std::set<Rank> ended_;
  std::string cause_;
  std::optional<std::string> gone_;
  Bell bell_;
};

}  // namespace troupe
