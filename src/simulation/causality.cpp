#include "src/simulation/causality.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

void CausalStamp::join(const CausalStamp& other) {
  if (counts_.size() < other.counts_.size()) counts_.resize(other.counts_.size());
  for (std::size_t i = 0; i < other.counts_.size(); ++i) counts_[i] = std::max(counts_[i], other.counts_[i]);
}

void CausalStamp::advance(PlaceId place) {
  if (counts_.size() <= place.value()) counts_.resize(place.value() + 1);
  ++counts_[place.value()];
}

PlaceId Causality::place(std::string name) {
  const PlaceId id{static_cast<std::uint32_t>(names_.size())};
  names_.push_back(std::move(name));
  clocks_.emplace_back();
  return id;
}

PlaceId Causality::of(const ActorAddress& actor) {
  const std::uint64_t key = (std::uint64_t{actor.rank.value()} << 16U) | static_cast<std::uint16_t>(actor.actor);
  const auto known = actors_.find(key);
  if (known != actors_.end()) return known->second;
  const std::string who = actor.rank == launcher_rank ? "launcher" : "rank " + std::to_string(actor.rank.value());
  return actors_[key] = place(std::string(troupe::name_of(actor.actor)) + " of " + who);
}

PlaceId Causality::of(Rank rank, LaneKind lane) {
  const std::uint64_t key = (std::uint64_t{rank.value()} << 8U) | static_cast<std::uint8_t>(lane);
  const auto known = lanes_.find(key);
  if (known != lanes_.end()) return known->second;
  return lanes_[key] = place(std::string(troupe::name_of(lane)) + " lane of rank " + std::to_string(rank.value()));
}

CausalStamp Causality::stamp() {
  CausalStamp& clock = clocks_[current_.value()];
  clock.advance(current_);
  return clock;
}

}  // namespace troupe
