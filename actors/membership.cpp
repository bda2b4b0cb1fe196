#include "actors/membership.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace troupe {
namespace {

double seconds(Nanos time) { return std::chrono::duration<double>(time).count(); }

std::string describe(Rank rank, const Pulse& pulse) {
  if (pulse.oldest.empty()) return fmt::format("rank {} at step {} has nothing pending", rank.value(), pulse.step.value());
  if (pulse.oldest_age == Nanos{0}) return fmt::format("rank {} at step {}: {}", rank.value(), pulse.step.value(), pulse.oldest);
  return fmt::format("rank {} at step {} waits {:.1f} s for {}", rank.value(), pulse.step.value(), seconds(pulse.oldest_age), pulse.oldest);
}

}  // namespace

std::optional<Rank> Membership::silent(Nanos now, Nanos limit) const {
  const auto oldest = std::ranges::min_element(pulses_, {}, [](const auto& entry) { return entry.second.heard; });
  if (oldest == pulses_.end() || now - oldest->second.heard <= limit) return std::nullopt;
  return oldest->first;
}

std::string Membership::describe_slowest(const std::set<Rank>& without) const {
  std::vector<std::pair<Rank, const Pulse*>> ranks;
  for (const auto& [rank, pulse] : pulses_)
    if (!without.contains(rank)) ranks.emplace_back(rank, &pulse);
  if (ranks.empty()) return "no rank sent a heartbeat";
  // The rank furthest behind is the one that others wait for; among equals, the one that has waited longest.
  std::ranges::stable_sort(ranks, [](const auto& a, const auto& b) {
    if (a.second->step != b.second->step) return a.second->step < b.second->step;
    return a.second->oldest_age > b.second->oldest_age;
  });
  std::string text;
  for (const auto& [rank, pulse] : ranks) text += (text.empty() ? "" : "; ") + describe(rank, *pulse);
  return text;
}

}  // namespace troupe
