#pragma once
#include <cstdint>
#include <functional>
#include <list>

#include "src/simulation/virtual_clock.hpp"

namespace troupe {

/// The cores of one host, shared by threads that want to compute: of n, each goes on at min(1, cores / n) of a core's speed, as a fair scheduler
/// lets them. One thread; the clock outlives it.
class CorePool {
 public:
  CorePool(VirtualClock& clock, double cores) : clock_(clock), cores_(cores) {}
  CorePool(const CorePool&) = delete;
  CorePool& operator=(const CorePool&) = delete;
  /// Calls `done` when the thread has had so much of a core's time; never before this returns.
  void spend(Nanos work, std::function<void()> done);
  [[nodiscard]] std::size_t busy() const noexcept { return threads_.size(); }

 private:
  struct Thread {
    double left;  ///< nanoseconds of a core
    std::function<void()> done;
  };
  [[nodiscard]] double speed() const noexcept;
  void advance();
  void wait_for_next();
  void finish(std::uint64_t round);

  VirtualClock& clock_;
  const double cores_;
  std::list<Thread> threads_;
  Nanos at_{0};
  std::uint64_t round_ = 0;  ///< the wake-up that counts; earlier ones are out of date
};

}  // namespace troupe
