#pragma once
#include <mutex>
#include <utility>
#include <vector>

#include "tools/launcher/socket.hpp"

namespace troupe {

/// What other threads have for the one that polls: any thread adds, one takes.
template <class T>
class BellQueue {
 public:
  void add(T item) {
    {
      const std::lock_guard lock(mutex_);
      items_.push_back(std::move(item));
    }
    bell_.ring();
  }
  /// All that came since the last call, in order. Does not block.
  [[nodiscard]] std::vector<T> take() {
    bell_.silence();
    const std::lock_guard lock(mutex_);
    return std::exchange(items_, {});
  }
  [[nodiscard]] const Bell& bell() const noexcept { return bell_; }

 private:
  std::mutex mutex_;
  std::vector<T> items_;
  Bell bell_;
};

}  // namespace troupe
