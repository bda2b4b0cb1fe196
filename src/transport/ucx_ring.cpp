#include <algorithm>
#include <thread>
#include <utility>

#include "src/transport/ucx_transport.hpp"

namespace troupe {
namespace {

std::string text(const Party& party) { return std::to_string(party.rank.value()) + "." + std::to_string(party.incarnation.value()); }

/// Both ends know it without a word: the job, and who sends to whom in which of their lives.
std::string ring_name(const Session& session, const Party& from, const Party& to) {
  return "troupe-ring-" + std::to_string(session.job) + "-" + text(from) + "-" + text(to);
}

/// For so long the thread stays with payloads that are under way before it looks at UCX again: a look takes as long as two blocks.
constexpr Nanos ring_turn = std::chrono::microseconds(100);

constexpr const char* broken_ring = "the memory that it shares with this process holds what cannot be";

}  // namespace

/// Without memory to share payloads go with UCX.
void UcxTransport::offer_ring(const Link& link) {
  auto ring = SharedRing::make(ring_name(options_.session, options_.self, link->peer));
  if (!ring) return;
  link->ring_out = std::make_unique<RingSender>(std::move(*ring), clock_);
  say(link, FrameType::ring_ready);
}

void UcxTransport::take_ring(const Link& link) {
  if (!link->process || link->ring_in) return;
  auto ring = SharedRing::find(*link->process, ring_name(options_.session, link->peer, options_.self));
  if (!ring) return;  // the peer hears nothing and goes on with UCX
  link->ring_in = std::make_unique<RingReceiver>(std::move(*ring));
  say(link, FrameType::ring_taken);
}

void UcxTransport::ring_taken(UcxLink& link) {
  if (!link.ring_out) return;
  link.ring_out->established();
  link.ring_usable = true;
}

/// A letter whose payload waits here until the receiver has named a slot for it.
void UcxTransport::put_ahead(UcxOutgoing* outgoing) {
  const Link link = outgoing->link;
  if (link->state == UcxLink::State::gone || link->broken || !link->ring_out) {
    return complete(outgoing, Error{"the link to rank " + std::to_string(link->peer.rank.value()) + " ended before the letter left"});
  }
  ++link->pending;
  link->going_by_ring[outgoing->sequence] = outgoing;
  link->ring_out->add(outgoing->sequence, outgoing->parcel->lease().bytes());
  put(new UcxOutgoing{link, nullptr, std::move(outgoing->frame), 0, nullptr, outgoing->accepted});
}

void UcxTransport::receive_by_ring(std::unique_ptr<UcxIncoming> incoming) {
  UcxLink& link = *incoming->link;
  const std::uint64_t sequence = incoming->header.sequence;
  ++link.pending;
  link.ring_in->grant(sequence, incoming->lease.bytes().first(incoming->header.payload_bytes));
  const Link keep = incoming->link;
  link.coming_by_ring[sequence] = std::move(incoming);
  if (link.ring_in->must_ring()) say(keep, FrameType::doorbell);
}

bool UcxTransport::move_rings() {
  bool moved = false, received = false;
  const Nanos end = clock_.now() + ring_turn;
  for (;;) {
    bool now = false, streaming = false;
    for (std::size_t i = 0; i < attended_.size(); ++i) {
      const Link link = attended_[i];
      if (link->ring_out && move_outgoing(link)) moved = now = true;
      if (link->ring_in && move_incoming(link)) received = now = true;
      if (!link->broken) streaming = streaming || (link->ring_out && link->ring_out->streaming()) || (link->ring_in && link->ring_in->streaming());
    }
    if (!streaming || clock_.now() >= end) break;
    if (!now) std::this_thread::yield();  // the peer may be waiting for this very processor
  }
  if (received && !parked_.empty()) retry_parked();
  return moved || received;
}

bool UcxTransport::move_outgoing(const Link& link) {
  if (link->ring_out->empty()) return false;
  const RingStep step = link->ring_out->advance({.written = [&](std::uint64_t bytes, std::uint64_t hash) { say(link, FrameType::payload_hash, bytes, hash); },
                                                 .taken =
                                                     [&](std::uint64_t sequence) {
                                                       const auto found = link->going_by_ring.find(sequence);
                                                       UcxOutgoing* const outgoing = found->second;
                                                       link->going_by_ring.erase(found);
                                                       --link->pending;
                                                       shared_ += outgoing->parcel->lease().bytes().size();
                                                       complete(outgoing, {});
                                                     }});
  if (step == RingStep::broken && !link->broken) link->broken = broken_ring;
  if (step == RingStep::moved && link->ring_out->must_ring()) say(link, FrameType::doorbell);
  return step == RingStep::moved;
}

bool UcxTransport::move_incoming(const Link& link) {
  const RingStep step = link->ring_in->advance([&](std::uint64_t sequence, bool intact) {
    auto incoming = std::move(link->coming_by_ring.extract(sequence).mapped());
    --link->pending;
    verified(*incoming, intact);
  });
  if (step == RingStep::broken && !link->broken) link->broken = broken_ring;
  if (step == RingStep::moved && link->ring_in->must_ring()) say(link, FrameType::doorbell);
  return step == RingStep::moved;
}

bool UcxTransport::ring_moves() const noexcept {
  return std::ranges::any_of(attended_,
                             [](const Link& link) { return (link->ring_out && !link->ring_out->empty()) || (link->ring_in && link->ring_in->moving()); });
}

/// Before and after the thread sleeps. True: a ring changed meanwhile, do not sleep.
bool UcxTransport::set_rings_sleeping(bool sleeping) {
  bool changed = false;
  for (const auto& link : attended_) {
    if (link->ring_out && link->ring_out->set_sleeping(sleeping)) changed = true;
    if (link->ring_in && link->ring_in->set_sleeping(sleeping)) changed = true;
  }
  return changed;
}

/// Nobody but this thread reads or writes those payloads here: leases go home at once.
void UcxTransport::end_rings(const Link& link) {
  link->ring_usable = false;
  link->ring_out.reset();
  link->ring_in.reset();
  const auto going = std::exchange(link->going_by_ring, {});
  const auto coming = std::exchange(link->coming_by_ring, {});
  link->pending -= going.size() + coming.size();
  for (const auto& [sequence, outgoing] : going) {
    complete(outgoing, Error{"not delivered to rank " + std::to_string(link->peer.rank.value()) + ": its link ended"});
  }
}

}  // namespace troupe
