#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "messages/actor_kind.hpp"
#include "src/base/ids.hpp"
#include "src/device/lane.hpp"

namespace troupe {

/// Something that does one thing at a time: an actor, a lane, the world outside.
using PlaceId = Id<struct PlaceTag, std::uint32_t>;

/// A vector clock: for each place, how many of its moments are known to have happened.
class CausalStamp {
 public:
  [[nodiscard]] std::uint32_t of(PlaceId place) const noexcept { return place.value() < counts_.size() ? counts_[place.value()] : 0; }
  void join(const CausalStamp& other);
  void advance(PlaceId place);

 private:
  std::vector<std::uint32_t> counts_;
};

/// What happened before what. The one place that acts at the moment is `current`; everything that hands something over takes a
/// `stamp` there and the receiver `join`s it. One thread.
class Causality {
 public:
  Causality() { outside_ = place("outside"); }
  [[nodiscard]] PlaceId of(const ActorAddress& actor);
  [[nodiscard]] PlaceId of(Rank rank, LaneKind lane);
  [[nodiscard]] PlaceId outside() const noexcept { return outside_; }
  [[nodiscard]] PlaceId current() const noexcept { return current_; }
  [[nodiscard]] const std::string& name_of(PlaceId place) const { return names_[place.value()]; }
  /// What the current place knows now; each stamp is a moment of its own.
  [[nodiscard]] CausalStamp stamp();
  void join(const CausalStamp& stamp) { clocks_[current_.value()].join(stamp); }
  [[nodiscard]] const CausalStamp& known() const { return clocks_[current_.value()]; }

  /// While it lives, `place` acts. They nest.
  class Acting {
   public:
    Acting(Causality& causality, PlaceId place) : causality_(causality), before_(causality.current_) { causality_.current_ = place; }
    ~Acting() { causality_.current_ = before_; }
    Acting(const Acting&) = delete;
    Acting& operator=(const Acting&) = delete;

   private:
    Causality& causality_;
    PlaceId before_;
  };

 private:
  PlaceId place(std::string name);

  std::map<std::uint64_t, PlaceId> actors_, lanes_;
  std::vector<std::string> names_;
  std::vector<CausalStamp> clocks_;
  PlaceId outside_, current_;
};

}  // namespace troupe
