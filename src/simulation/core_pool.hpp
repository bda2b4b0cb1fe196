#pragma once
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <vector>

#include "src/simulation/virtual_clock.hpp"

namespace troupe {

/// The cores of one host, shared by threads that want to compute, as a host's scheduler shares them: a thread that begins goes to an idle core if there is one
/// and else to the one that it was on before; those of one core take turns in slices too short to see, and nobody moves while it computes. So three threads on
/// two cores do not each get two thirds: one has a core for itself, until a core falls idle and another begins. Where all cores are busy each does `capacity` /
/// cores of its work. One thread; the clock outlives it.
class CorePool {
 public:
  /// `capacity`: what all cores do together, in cores that have the machine for themselves; there are that many, rounded up.
  CorePool(VirtualClock& clock, double capacity);
  CorePool(const CorePool&) = delete;
  CorePool& operator=(const CorePool&) = delete;
  /// Calls `done` when the thread `who` (any address; null: one that was never here) has had so much of a core's time; never before this returns.
  void spend(Nanos work, std::function<void()> done, const void* who = nullptr);
  [[nodiscard]] std::size_t busy() const noexcept { return threads_.size(); }

 private:
  struct Thread {
    double left;  ///< nanoseconds of a core
    std::size_t core;
    std::function<void()> done;
  };
  [[nodiscard]] std::size_t place(const void* who);
  [[nodiscard]] double speed(const Thread& thread) const noexcept;
  void advance();
  void wait_for_next();
  void finish(std::uint64_t round);

  VirtualClock& clock_;
  const double capacity_;
  std::vector<std::size_t> load_;  ///< threads of each core
  std::map<const void*, std::size_t> last_core_;
  std::list<Thread> threads_;
  Nanos at_{0};
  std::uint64_t round_ = 0;  ///< the wake-up that counts; earlier ones are out of date
};

}  // namespace troupe
