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

/// Without who waits for what beside it.
std::string operation_of(const Pulse& pulse) { return pulse.oldest.substr(0, pulse.oldest.find(';')); }

}  // namespace

void Membership::left(Rank rank) {
  std::erase_if(joined_, [rank](const JoinedRank& member) { return member.rank == rank; });
  pulses_.erase(rank);
}

bool Membership::silent(Rank rank, Nanos now, Nanos limit) const {
  const auto pulse = pulses_.find(rank);
  return pulse != pulses_.end() && now - pulse->second.heard > limit;
}

std::string Membership::name_of_place(Rank rank) const {
  const auto found = std::ranges::find(joined_, rank, &JoinedRank::rank);
  return found == joined_.end() ? fmt::format("rank {}", rank.value()) : fmt::format("rank {} (pid {} on {})", rank.value(), found->pid, found->host);
}

std::optional<Membership::Culprit> Membership::culprit(Nanos now, Nanos silence) const {
  // What the others are at: the collective that is pending for the longest time with somebody who answers.
  const Pulse* waiting = nullptr;
  const std::pair<const Rank, Pulse>*quiet = nullptr, *behind = nullptr;
  for (const auto& entry : pulses_) {
    const Pulse& pulse = entry.second;
    const bool collective = pulse.oldest.starts_with("comm:");
    if (now - pulse.heard > silence) {
      if (quiet == nullptr || pulse.heard < quiet->second.heard) quiet = &entry;
    } else if (collective) {
      if (waiting == nullptr || pulse.oldest_age > waiting->oldest_age) waiting = &pulse;
    } else if (!pulse.oldest.empty() &&
               (behind == nullptr || pulse.step < behind->second.step || (pulse.step == behind->second.step && pulse.oldest_age > behind->second.oldest_age))) {
      behind = &entry;
    }
  }
  const std::string held = waiting == nullptr ? "" : fmt::format(" and holds up the others in {}", operation_of(*waiting));
  if (quiet != nullptr)
    return Culprit{
        quiet->first, true,
        fmt::format("{} has been silent for {:.1f} s, though its process has not ended (stopped, or its host is out of reach),{} (it was at step {}: {})",
                    name_of_place(quiet->first), seconds(now - quiet->second.heard), held, quiet->second.step.value(),
                    quiet->second.oldest.empty() ? "nothing pending" : operation_of(quiet->second))};
  if (behind != nullptr && waiting != nullptr && behind->second.oldest_age >= waiting->oldest_age)
    return Culprit{
        behind->first, false,
        fmt::format("{} has been at {} for {:.1f} s{}", name_of_place(behind->first), operation_of(behind->second), seconds(behind->second.oldest_age), held)};
  return std::nullopt;
}

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
