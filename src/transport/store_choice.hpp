#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "messages/hashed_copy.hpp"
#include "src/base/clock.hpp"

namespace troupe {

/// By which stores the blocks of a ring are written. Two processors that share a cache hand a block over twice as fast through it; between
/// two that share none, stores through the cache wait for each line and take five times as long as stores beside it. Which of the two it is
/// changes while a process runs: its threads move, and a virtual machine's processors do too. So one block in `between` is written the
/// other way and both are timed. One thread.
class StoreChoice {
 public:
  static constexpr std::uint64_t between = 128;  ///< blocks of 32 KiB: 4 MiB
  static constexpr std::size_t kept = 4;         ///< timings of each way; the best counts, so that an interruption changes nothing
  static constexpr int slower = 3, than = 2;     ///< through the cache up to one and a half times the time is worth it: the reader gains more

  struct Block {
    Stores stores;
    bool timed;  ///< took() is to be called
  };
  [[nodiscard]] Block next() noexcept {
    const std::uint64_t turn = turn_++ % between;
    return {turn == 1 ? other(chosen_) : chosen_, turn < 2};
  }
  void took(Stores stores, Nanos time) noexcept {
    Timings& timings = timings_[stores == Stores::through_cache ? 0 : 1];
    timings.last[timings.count++ % kept] = time;
    if (timings_[0].count > 0 && timings_[1].count > 0) {
      chosen_ = timings_[0].best() * than <= timings_[1].best() * slower ? Stores::through_cache : Stores::beside_cache;
    }
  }

 private:
  struct Timings {
    std::array<Nanos, kept> last{};
    std::uint64_t count = 0;
    [[nodiscard]] Nanos best() const {
      return *std::min_element(last.begin(), last.begin() + static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(count, kept)));
    }
  };
  static Stores other(Stores stores) noexcept { return stores == Stores::through_cache ? Stores::beside_cache : Stores::through_cache; }
  std::array<Timings, 2> timings_{};
  std::uint64_t turn_ = 0;
  Stores chosen_ = Stores::beside_cache;
};

}  // namespace troupe
