#include "src/simulation/simulated_post_office.hpp"

#include <algorithm>
#include <utility>

#include "messages/kinds.hpp"
#include "src/simulation/virtual_world.hpp"

namespace troupe {
namespace {

std::string inspection_of(const schema::Envelope::Reader& envelope) {
  const auto from = address_of(envelope.getFrom());
  const auto body = envelope.getBody().getInspection();
  return std::string(name_of(from.actor)) + " of rank " + std::to_string(from.rank.value()) + ": " + body.getText().cStr() +
         (body.getWaiting().size() > 0 ? std::string("; waits for ") + body.getWaiting().cStr() : "");
}

}  // namespace

void SimulatedPostOffice::deliver_with(PostOffice& inner, std::function<void()> settle) {
  inner_ = &inner;
  settle_ = std::move(settle);
}

SimulatedPostOffice::Place& SimulatedPostOffice::at(PlaceId place) {
  while (places_.size() <= place.value()) places_.emplace_back();
  return places_[place.value()];
}

void SimulatedPostOffice::post(std::shared_ptr<const Parcel> parcel) {
  if (closed_) return;
  const auto envelope = parcel->envelope();
  const ActorAddress to = address_of(envelope.getTo()), from = address_of(envelope.getFrom());
  if (lives_[from.rank].dead || (from.rank == to.rank && lives_[to.rank].dead)) return;
  correspondents_.insert(to);
  correspondents_.insert(from);
  Causality& causality = world_.causality();
  CausalStamp stamp = causality.stamp();
  if (envelope.getBody().isSlotHome()) {
    const auto home = envelope.getBody().getSlotHome();
    stamp.join(world_.slots().home(to.rank.value(), static_cast<EdgeKind>(home.getEdge()), SlotIndex{home.getSlot()}));
  }
  if (envelope.getBody().isInspection()) inspections_.push_back(inspection_of(envelope));
  world_.invariants().sent(envelope);
  const PlaceId writer = causality.current();
  Place& place = at(writer);
  if (place.outbox.empty()) sending_.push_back(writer);
  place.outbox.push_back({std::move(parcel), std::move(stamp), causality.of(to), lives_[from.rank].number, lives_[to.rank].number});
}

bool SimulatedPostOffice::step() {
  const std::size_t choices = sending_.size() + reading_.size();
  if (choices == 0) return false;
  if (world_.seed() == 0) {  // first in, first out
    if (sending_.empty()) {
      read_first(reading_.front());
    } else {
      send_first(sending_.front());
    }
    return true;
  }
  const std::size_t choice = world_.pick(choices);
  if (choice < sending_.size()) {
    send_first(sending_[choice]);
  } else if (const PlaceId reader = reading_[choice - sending_.size()]; at(reader).outbox.empty()) {
    read_first(reader);
  } else {
    send_first(reader);  // it is still inside the handler before
  }
  return true;
}

void SimulatedPostOffice::send_first(PlaceId from) {
  Place& place = at(from);
  Item item = std::move(place.outbox.front());
  place.outbox.pop_front();
  if (place.outbox.empty()) sending_.erase(std::find(sending_.begin(), sending_.end(), from));
  const auto envelope = item.parcel->envelope();
  if (envelope.getFrom().getRank() == envelope.getTo().getRank()) return arrive(std::move(item));
  Nanos& last = last_arrival_.try_emplace({from, item.to}, Nanos{-1}).first->second;
  last = std::max(last + Nanos{1}, world_.clock().now() + world_.letter_delay() + (slow_ ? slow_(envelope) : Nanos{0}));
  world_.clock().at(last, [this, item = std::move(item)]() mutable { arrive(std::move(item)); });
}

bool SimulatedPostOffice::lost(const Item& item) {
  const auto envelope = item.parcel->envelope();
  const Life &from = lives_[Rank{envelope.getFrom().getRank()}], &to = lives_[Rank{envelope.getTo().getRank()}];
  return to.dead || to.number != item.receiver_life || (from.number != item.sender_life && !from.dead);
}

void SimulatedPostOffice::kill(Rank rank) {
  Life& life = lives_[rank];
  if (life.dead) return;
  life.dead = true;
  ++life.number;
}

void SimulatedPostOffice::revive(Rank rank) { lives_[rank].dead = false; }

void SimulatedPostOffice::arrive(Item item) {
  if (lost(item)) return;
  const PlaceId to = item.to;
  Place& place = at(to);
  if (place.mailbox.empty()) reading_.push_back(to);
  place.mailbox.push_back(std::move(item));
}

void SimulatedPostOffice::read_first(PlaceId to) {
  Place& place = at(to);
  Item item = std::move(place.mailbox.front());
  place.mailbox.pop_front();
  reading_.erase(std::find(reading_.begin(), reading_.end(), to));
  if (!place.mailbox.empty()) reading_.push_back(to);
  if (lost(item)) return;
  const auto envelope = item.parcel->envelope();
  const auto where = envelope.getWhere();
  ++delivered_;
  world_.trace().add(world_.clock().now(), name_of(envelope.getBody().which()), to.value(), where.getStep(),
                     (std::uint64_t{where.getMicro()} << 40U) | (std::uint64_t{where.getUnit()} << 20U) | where.getSlot());
  const Causality::Acting acting(world_.causality(), to);
  world_.causality().join(item.stamp);
  if (inner_) inner_->post(std::move(item.parcel));
  if (settle_) settle_();
}

std::vector<std::string> SimulatedPostOffice::take_inspections() { return std::exchange(inspections_, {}); }

void SimulatedPostOffice::close() {
  closed_ = true;
  sending_.clear();
  reading_.clear();
  places_.clear();
}

}  // namespace troupe
