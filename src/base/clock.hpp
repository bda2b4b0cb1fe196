#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

namespace troupe {

using Nanos = std::chrono::nanoseconds;

/// Monotonic time and timers, behind a seam so that tests and the simulator own time. Every part of the program asks the
/// clock that its Runtime carries; nothing else reads time or sleeps. `now` and `after` may be called from any thread.
class Clock {
 public:
  virtual ~Clock() = default;
  /// Since an arbitrary start, the same for all processes of one host (CLOCK_MONOTONIC).
  [[nodiscard]] virtual Nanos now() const = 0;
  /// Calls `then` once, after `delay`, from the clock's own thread; it must not block. There is no cancel: check on arrival.
  virtual void after(Nanos delay, std::function<void()> then) = 0;
};

/// The real clock, with one timer thread. The destructor drops what is still pending.
[[nodiscard]] std::unique_ptr<Clock> make_system_clock();

}  // namespace troupe
