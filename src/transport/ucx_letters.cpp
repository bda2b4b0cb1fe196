#include <algorithm>
#include <utility>

#include "messages/kinds.hpp"
#include "src/trace/tracer.hpp"
#include "src/transport/ucx_transport.hpp"

namespace troupe {
namespace {

constexpr std::size_t check_beside = std::size_t{1} << 20;  ///< longer payloads are hashed by the other thread, shorter ones while they are in the cache
constexpr std::size_t early_limit = 1024;                   ///< frames of peers that are not connected yet

}  // namespace

void UcxTransport::put(UcxOutgoing* outgoing) {
  if (!queue_behind(outgoing)) hand_over(outgoing);
}

void UcxTransport::hand_over(UcxOutgoing* outgoing) {
  UcxLink& link = *outgoing->link;
  if (link.state == UcxLink::State::gone || link.endpoint == nullptr || link.broken) {
    return complete(outgoing, Error{"the link to rank " + std::to_string(link.peer.rank.value()) + " ended before the letter left"});
  }
  const auto payload = outgoing->parcel && outgoing->parcel->lease() ? outgoing->parcel->lease().bytes() : std::span<std::byte>{};
  ucp_request_param_t parameters{};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  parameters.flags = payload.empty() ? UCP_AM_SEND_FLAG_EAGER : UCP_AM_SEND_FLAG_RNDV;
  parameters.user_data = outgoing;
  parameters.cb.send = [](void* request, ucs_status_t status, void* user_data) {
    ucp_request_free(request);
    auto* answered = static_cast<UcxOutgoing*>(user_data);
    answered->transport->sent(answered, status);
  };
  outgoing->transport = this;
  ++link.pending;
  outgoing_.insert(outgoing);
  if (!payload.empty()) ++payloads_out_;
  outgoing->has_payload = !payload.empty();
  void* request = ucp_am_send_nbx(link.endpoint, frame_message, outgoing->frame.data(), outgoing->frame.size(), payload.data(), payload.size(), &parameters);
  if (!UCS_PTR_IS_PTR(request)) sent(outgoing, UCS_PTR_RAW_STATUS(request));
}

void UcxTransport::sent(UcxOutgoing* outgoing, ucs_status_t status) {
  outgoing_.erase(outgoing);
  if (outgoing->has_payload && !outgoing->abandoned) --payloads_out_;
  if (outgoing->abandoned) {
    delete outgoing;
    return;
  }
  --outgoing->link->pending;
  if (status == UCS_OK) return complete(outgoing, {});
  complete(outgoing, Error{"not delivered to rank " + std::to_string(outgoing->link->peer.rank.value()) + ": " + ucs_status_string(status)});
}

/// The end of an outgoing letter, for whoever sent it.
void UcxTransport::complete(UcxOutgoing* raw, const Result<void>& result) {
  const std::unique_ptr<UcxOutgoing> outgoing(raw);
  tell(*outgoing, result);
}

void UcxTransport::tell(UcxOutgoing& outgoing_letter, const Result<void>& result) {
  UcxOutgoing* outgoing = &outgoing_letter;
  in_flight_ -= outgoing->bytes;
  if (outgoing->parcel) {
    if (result.ok()) {
      ++letters_sent_;
      if (outgoing->parcel->lease()) payload_sent_ += outgoing->parcel->lease().bytes().size();
    }
    trace("send ", *outgoing->parcel, outgoing->accepted, result.ok() ? "ok" : "failed");
  }
  outgoing->parcel.reset();
  if (const Completion completion = std::exchange(outgoing->completion, nullptr)) completion(result);
}

/// UCX does not answer what it holds for this link: its peer is dead, so nothing reads or writes those bytes any more.
void UcxTransport::abandon(UcxLink& link) {
  std::vector<UcxOutgoing*> letters;
  for (auto* outgoing : outgoing_) {
    if (outgoing->link.get() == &link && !outgoing->abandoned) letters.push_back(outgoing);
  }
  for (auto* outgoing : letters) {
    outgoing->abandoned = true;
    if (outgoing->has_payload) --payloads_out_;
    --link.pending;
    tell(*outgoing, Error{"not delivered to rank " + std::to_string(link.peer.rank.value()) + ": it was lost"});
  }
  for (auto* incoming : incoming_) {
    if (incoming->link.get() != &link || incoming->abandoned) continue;
    incoming->abandoned = true;
    --link.pending;
    incoming->lease.reset();
  }
}

ucs_status_t UcxTransport::frame_arrived(void* self, const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
                                         const ucp_am_recv_param_t* parameters) {
  auto& transport = *static_cast<UcxTransport*>(self);
  const std::span frame(static_cast<const std::byte*>(header), header_bytes);
  const bool keepable = (parameters->recv_attr & (UCP_AM_RECV_ATTR_FLAG_RNDV | UCP_AM_RECV_ATTR_FLAG_DATA)) != 0;
  void* descriptor = bytes != 0 && keepable ? data : nullptr;
  Party sender;
  if (!claimed_sender(frame, sender) || frame.size() > max_frame_bytes) {
    transport.refused_.add(FrameProblem::length);
    return UCS_OK;
  }
  const auto found = transport.known_.find(sender.rank);
  const bool known = found != transport.known_.end();
  if (!known || found->second->state == UcxLink::State::gone) {
    // Perhaps we are about to connect to it, or to its next incarnation; the opener will tell which of these frames are good.
    const bool stale = known && sender.incarnation <= found->second->peer.incarnation;
    if (stale || transport.early_.size() >= early_limit) {
      transport.refused_.add(FrameProblem::sender);
      return UCS_OK;
    }
    transport.early_.push_back({sender, {frame.begin(), frame.end()}, descriptor, bytes});
    return descriptor != nullptr ? UCS_INPROGRESS : UCS_OK;
  }
  return transport.admit(found->second, frame, descriptor, bytes) ? UCS_INPROGRESS : UCS_OK;
}

/// Opens a frame and takes its letter in. True: the payload's descriptor is kept.
bool UcxTransport::admit(const Link& link, std::span<const std::byte> frame, void* descriptor, std::size_t bytes) {
  auto opened = link->opener.open(frame);
  if (!opened) return false;
  const FrameType type = opened->header.type;
  const std::uint64_t announced = type == FrameType::letter ? opened->header.payload_bytes : 0;
  if (announced != bytes || (bytes != 0 && descriptor == nullptr) || (type == FrameType::letter_ahead && !link->ring_in)) {
    refused_.add(FrameProblem::payload);
    return false;
  }
  if (!has_letter(type)) {
    take_notice(link, opened->header);
    return false;
  }
  const Nanos now = clock_.now();
  if (opened->header.payload_bytes == 0) {
    deliver(*link, std::make_shared<const Parcel>(kj::mv(opened->words), Lease{}), 0, now);
    return false;
  }
  const auto kind = capnp::FlatArrayMessageReader(opened->words).getRoot<schema::Envelope>().getBody().which();
  auto incoming = std::make_unique<UcxIncoming>(UcxIncoming{this, link, opened->header, kind, kj::mv(opened->words), descriptor, {}, now, false});
  const std::uint64_t slots_freed = slots_freed_;
  const auto asked = must_queue(*incoming) ? Asked::no_slot : ask_for_slot(incoming);
  if (asked == Asked::slot_too_short) return false;
  if (asked == Asked::no_slot) park(std::move(incoming), slots_freed);
  return descriptor != nullptr;
}

/// A frame without a letter.
void UcxTransport::take_notice(const Link& link, const FrameHeader& header) {
  switch (header.type) {
    case FrameType::goodbye:
    case FrameType::goodbye_seen: return goodbye(link, header.type);
    case FrameType::ring_ready: return take_ring(link);
    case FrameType::ring_taken: return ring_taken(*link);
    case FrameType::payload_hash:
      if (!link->ring_in || !link->ring_in->expect(header.payload_bytes, header.payload_hash)) refused_.add(FrameProblem::payload);
      return;
    default: return retry_parked();  // a doorbell: we are awake, and look at the rings next
  }
}

void UcxTransport::admit_early(const Link& link) {
  std::vector<UcxEarly> mine;
  const auto split = std::stable_partition(early_.begin(), early_.end(), [&](const UcxEarly& early) { return early.sender.rank != link->peer.rank; });
  mine.assign(std::make_move_iterator(split), std::make_move_iterator(early_.end()));
  early_.erase(split, early_.end());
  for (auto& early : mine) {
    if (!admit(link, early.frame, early.descriptor, early.bytes) && early.descriptor != nullptr) ucp_am_data_release(worker_->handle(), early.descriptor);
  }
}

void UcxTransport::goodbye(const Link& link, FrameType type) {
  using State = UcxLink::State;
  if (type == FrameType::goodbye_seen) {
    if (link->state != State::parting) return;
    end_link(link, "its link was closed here");
    return finish_close(link, {});
  }
  while (link->ring_in && move_incoming(link)) {}  // what came before it is delivered first
  if (link->checking != 0) {
    link->goodbye_waits = true;
    return;
  }
  link->peer_parted = true;
  say(link, FrameType::goodbye_seen);
  if (link->state != State::open) return;  // we are closing too
  refuse_sends(link, "it has closed its link");
  link->state = State::left;
  link->deadline = clock_.now() + linger;
  if (handlers_.peer_left) handlers_.peer_left(link->peer.rank);
}

/// Asks for a slot and starts to receive into it; `incoming` is taken then, and left to the caller otherwise.
UcxTransport::Asked UcxTransport::ask_for_slot(std::unique_ptr<UcxIncoming>& incoming) {
  const bool by_ring = incoming->descriptor == nullptr;
  if (by_ring && !incoming->link->ring_in->may_grant()) return Asked::no_slot;
  capnp::ReaderOptions unlimited;
  unlimited.traversalLimitInWords = kj::maxValue;
  capnp::FlatArrayMessageReader reader(incoming->words, unlimited);  // checked when it was opened
  incoming->lease = handlers_.slot_for(reader.getRoot<schema::Envelope>(), incoming->header.payload_bytes);
  if (!incoming->lease) return Asked::no_slot;
  const std::size_t bytes = incoming->header.payload_bytes;
  if (incoming->lease.bytes().size() < bytes) {
    refused_.add(FrameProblem::payload);
    if (by_ring) incoming->link->ring_in->refuse(incoming->header.sequence);
    if (by_ring && incoming->link->ring_in->must_ring()) say(incoming->link, FrameType::doorbell);
    return Asked::slot_too_short;
  }
  if (by_ring) {
    receive_by_ring(std::move(incoming));
    return Asked::receiving;
  }
  UcxIncoming* taken = incoming.release();
  ++taken->link->pending;
  incoming_.insert(taken);
  ucp_request_param_t parameters{};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  parameters.user_data = taken;
  parameters.cb.recv_am = [](void* request, ucs_status_t status, std::size_t, void* user_data) {
    ucp_request_free(request);
    auto* answered = static_cast<UcxIncoming*>(user_data);
    answered->transport->received(answered, status);
  };
  void* request = ucp_am_recv_data_nbx(worker_->handle(), taken->descriptor, taken->lease.bytes().data(), bytes, &parameters);
  if (!UCS_PTR_IS_PTR(request)) received(taken, UCS_PTR_RAW_STATUS(request));
  return Asked::receiving;
}

void UcxTransport::received(UcxIncoming* raw, ucs_status_t status) {
  std::unique_ptr<UcxIncoming> incoming(raw);
  incoming_.erase(raw);
  if (incoming->abandoned) return;
  --incoming->link->pending;
  if (status != UCS_OK) return;  // the link breaks, and says so itself; the slot goes home with the lease
  const auto payload = incoming->lease.bytes().first(incoming->header.payload_bytes);
  const std::uint64_t hash = incoming->header.payload_hash;
  if (payload.size() < check_beside && incoming->link->checking == 0) return verified(*incoming, payload_hash(payload) == hash);
  ++incoming->link->checking;  // smaller ones queue behind, in order
  ++incoming->link->pending;
  std::shared_ptr<UcxIncoming> checked = std::move(incoming);
  check_->check(payload, hash, [this, checked](bool intact) {
    post([this, checked, intact] {
      const Link link = checked->link;
      --link->checking;
      --link->pending;
      verified(*checked, intact);
      if (link->checking == 0 && std::exchange(link->goodbye_waits, false)) goodbye(link, FrameType::goodbye);
    });
  });
}

void UcxTransport::verified(UcxIncoming& incoming, bool intact) {
  if (!intact) {
    refused_.add(FrameProblem::payload);
    return;
  }
  deliver(*incoming.link, std::make_shared<const Parcel>(kj::mv(incoming.words), std::move(incoming.lease)), incoming.header.payload_bytes, incoming.arrived);
}

void UcxTransport::deliver(const UcxLink& link, std::shared_ptr<const Parcel> parcel, std::uint64_t payload_bytes, Nanos arrived) {
  if (link.state == UcxLink::State::gone) return;
  ++letters_received_;
  payload_received_ += payload_bytes;
  trace("receive ", *parcel, arrived, "ok");
  handlers_.letter(std::move(parcel));
}

/// Payloads of one kind from one peer are received in the order sent.
bool UcxTransport::must_queue(const UcxIncoming& incoming) const {
  return std::ranges::any_of(parked_, [&](const auto& earlier) { return earlier->link == incoming.link && earlier->kind == incoming.kind; });
}

/// `slots_freed`: when a slot was asked for. One that went home since may not have been told, see slot_available().
void UcxTransport::park(std::unique_ptr<UcxIncoming> incoming, std::uint64_t slots_freed) {
  parked_.push_back(std::move(incoming));
  parked_count_ = parked_.size();
  if (slots_freed_ != slots_freed) post([this] { retry_parked(); });
}

void UcxTransport::retry_parked() {
  const std::uint64_t slots_freed = slots_freed_;
  std::deque<std::unique_ptr<UcxIncoming>> waiting;
  waiting.swap(parked_);
  for (auto& incoming : waiting) {
    const auto asked = must_queue(*incoming) ? Asked::no_slot : ask_for_slot(incoming);
    if (asked == Asked::slot_too_short && incoming->descriptor != nullptr) ucp_am_data_release(worker_->handle(), incoming->descriptor);
    if (asked == Asked::no_slot) parked_.push_back(std::move(incoming));
  }
  parked_count_ = parked_.size();
  if (!parked_.empty() && slots_freed_ != slots_freed) post([this] { retry_parked(); });
}

void UcxTransport::drop_parked(const UcxLink& link) {
  const auto split = std::stable_partition(parked_.begin(), parked_.end(), [&](const auto& incoming) { return incoming->link.get() != &link; });
  for (auto at = split; at != parked_.end(); ++at) {
    if ((*at)->descriptor != nullptr) ucp_am_data_release(worker_->handle(), (*at)->descriptor);
  }
  parked_.erase(split, parked_.end());
  parked_count_ = parked_.size();
}

void UcxTransport::trace(const char* what, const Parcel& parcel, Nanos started, std::string_view outcome) const {
  if (options_.tracer == nullptr) return;
  const auto envelope = parcel.envelope();
  options_.tracer->span({.rank = options_.self.rank,
                         .track = "transport",
                         .name = what + std::string(name_of(envelope.getBody().which())),
                         .where = where_of(envelope),
                         .issued = started,
                         .started = started,
                         .ended = clock_.now(),
                         .outcome = outcome});
}

}  // namespace troupe
