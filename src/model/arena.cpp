#include "src/model/arena.hpp"

#include <algorithm>
#include <map>
#include <numeric>

namespace troupe {
namespace {

constexpr std::size_t alignment = 64;
std::size_t aligned(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

void find_peak(std::span<const Lifetime> lifetimes, ArenaPlacement& placement) {
  std::map<std::uint32_t, std::ptrdiff_t> change;
  for (const Lifetime& l : lifetimes) {
    change[l.first] += static_cast<std::ptrdiff_t>(aligned(l.bytes));
    change[l.last + 1] -= static_cast<std::ptrdiff_t>(aligned(l.bytes));
  }
  std::ptrdiff_t live = 0;
  for (const auto& [at, delta] : change) {
    live += delta;
    if (static_cast<std::size_t>(live) > placement.peak) {
      placement.peak = static_cast<std::size_t>(live);
      placement.peak_at = at;
    }
  }
}

}  // namespace

ArenaPlacement place_in_arena(std::span<const Lifetime> lifetimes) {
  ArenaPlacement placement;
  placement.offsets.resize(lifetimes.size());
  std::vector<std::size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const auto length = [&](std::size_t i) { return lifetimes[i].last - lifetimes[i].first; };
    if (length(a) != length(b)) return length(a) > length(b);
    return lifetimes[a].bytes != lifetimes[b].bytes ? lifetimes[a].bytes > lifetimes[b].bytes : a < b;
  });
  std::vector<std::size_t> placed;  // by offset
  for (const std::size_t i : order) {
    const std::size_t bytes = aligned(lifetimes[i].bytes);
    std::size_t offset = 0;
    for (const std::size_t j : placed) {
      const bool together = lifetimes[i].first <= lifetimes[j].last && lifetimes[j].first <= lifetimes[i].last;
      if (!together) continue;
      if (placement.offsets[j] >= offset + bytes) break;
      offset = std::max(offset, placement.offsets[j] + aligned(lifetimes[j].bytes));
    }
    placement.offsets[i] = offset;
    placement.bytes = std::max(placement.bytes, offset + bytes);
    const auto at = std::upper_bound(placed.begin(), placed.end(), offset, [&](std::size_t value, std::size_t j) { return value < placement.offsets[j]; });
    placed.insert(at, i);
  }
  find_peak(lifetimes, placement);
  return placement;
}

}  // namespace troupe
