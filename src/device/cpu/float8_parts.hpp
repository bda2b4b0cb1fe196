#pragma once
#include <atomic>
#include <bit>
#include <cstdint>

#include "src/device/cpu/float8_bits.hpp"
#include "src/device/cpu/vectorise.hpp"
#include "src/device/verdict.hpp"

namespace troupe::cpu {

/// What the casts of one part of a tensor met.
struct Float8PartCounts {
  std::uint32_t saturated = 0, non_finite = 0;
};

/// One value: its code, and what it adds to `beyond` (all that round past the largest) and `strange` (those of them that are not finite).
template <class Format>
TROUPE_INLINE std::uint8_t counted_float8(float value, std::uint32_t& beyond, std::uint32_t& strange) {
  const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(value) & 0x7fffffffU;
  beyond += magnitude > std::bit_cast<std::uint32_t>(Format::rounds_to_largest) ? 1U : 0U;
  strange += magnitude > 0x7f7fffffU ? 1U : 0U;
  return to_float8<Format>(value);
}

/// Sums of all threads' parts; whole numbers, so their order does not matter.
class Float8Tally {
 public:
  void add(const Float8PartCounts& part) {
    saturated_.fetch_add(part.saturated, std::memory_order_relaxed);
    non_finite_.fetch_add(part.non_finite, std::memory_order_relaxed);
  }
  void add_to(Float8Counts* counts) const {
    if (counts == nullptr) return;
    counts->saturated += static_cast<double>(saturated_.load());
    counts->non_finite += static_cast<double>(non_finite_.load());
  }

 private:
  std::atomic<std::uint64_t> saturated_{0}, non_finite_{0};
};

}  // namespace troupe::cpu
