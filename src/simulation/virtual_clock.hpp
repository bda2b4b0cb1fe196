#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <utility>

#include "src/base/clock.hpp"

namespace troupe {

/// Time that moves only when told: a queue of events. One thread. Events of one instant run in the order in which they were
/// set, or, with a seed, in an order drawn from it.
class VirtualClock final : public Clock {
 public:
  explicit VirtualClock(std::uint64_t seed) : seed_(seed), random_(seed) {}
  [[nodiscard]] Nanos now() const override { return now_; }
  void after(Nanos delay, std::function<void()> then) override { at(now_ + delay, std::move(then)); }
  /// A time in the past is now.
  void at(Nanos time, std::function<void()> then);
  [[nodiscard]] bool idle() const noexcept { return events_.empty(); }
  [[nodiscard]] Nanos next() const { return events_.begin()->first.time; }  ///< only when not idle
  /// Moves to the earliest event and runs it; only when not idle.
  void advance();
  void clear() noexcept { events_.clear(); }

 private:
  struct Key {
    Nanos time;
    std::uint64_t tie;
    std::uint64_t sequence;
    auto operator<=>(const Key&) const = default;
  };

  const std::uint64_t seed_;
  std::mt19937_64 random_;
  Nanos now_{0};
  std::uint64_t sequence_ = 0;
  std::map<Key, std::function<void()>> events_;
};

}  // namespace troupe
