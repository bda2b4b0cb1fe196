#pragma once
#include <functional>
#include <map>
#include <utility>

#include "src/base/clock.hpp"

namespace troupe {

/// Time that moves only when the test says so. One thread.
class ManualClock final : public Clock {
 public:
  [[nodiscard]] Nanos now() const override { return now_; }
  void after(Nanos delay, std::function<void()> then) override { timers_.emplace(now_ + delay, std::move(then)); }
  void advance(Nanos by) {
    const Nanos until = now_ + by;
    while (!timers_.empty() && timers_.begin()->first <= until) {
      auto timer = timers_.extract(timers_.begin());
      now_ = timer.key();
      timer.mapped()();
    }
    now_ = until;
  }

 private:
  Nanos now_{0};
  std::multimap<Nanos, std::function<void()>> timers_;
};

}  // namespace troupe
