#pragma once
#include <mutex>
#include <utility>
#include <vector>

#include "src/base/ids.hpp"
#include "tools/launcher/socket.hpp"

namespace troupe {

/// Workers that the Coordinator wants to have started, again or to join, or ended. Any thread.
class RespawnQueue {
 public:
  struct Request {
    Rank rank;
    Incarnation incarnation;
    bool let_go = false;  ///< how it ends is nobody's concern any more
    bool kill = false;    ///< what is left of it is killed
  };
  void add(Request request) {
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(request);
    }
    bell_.ring();
  }
  [[nodiscard]] std::vector<Request> take() {
    bell_.silence();
    const std::lock_guard lock(mutex_);
    return std::exchange(requests_, {});
  }
  [[nodiscard]] const Bell& bell() const noexcept { return bell_; }

 private:
  std::mutex mutex_;
  std::vector<Request> requests_;
  Bell bell_;
};

}  // namespace troupe
