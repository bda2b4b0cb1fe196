#pragma once
#include <ucp/api/ucp.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "messages/kinds.hpp"
#include "src/transport/ring_payloads.hpp"
#include "src/transport/transport.hpp"

namespace troupe {

/// After the peer's goodbye: time for our last frames to get out before the endpoint is closed by force.
inline constexpr Nanos linger = std::chrono::seconds(1);

/// For UCX to answer the requests of a broken endpoint. It never does while the dead peer's queue in shared memory is full (1.22).
inline constexpr Nanos answer_limit = std::chrono::milliseconds(300);

struct UcxOutgoing;
struct UcxIncoming;

/// One peer, from connect() to the end of its endpoint. What is not marked otherwise belongs to the transport's thread.
struct UcxLink {
  UcxLink(const Session& session, Party self, Party p, FrameCounts& counts) : peer(p), sealer(session, self, p), opener(session, self, p, counts) {}

  enum class State : std::uint8_t {
    open,
    draining,  ///< close(flush) was asked for: its sends are still under way
    parting,   ///< the goodbye is out, its answer is not here
    left,      ///< the peer said goodbye: until the deadline the endpoint stays, for our answer to get out
    gone,      ///< closed or lost: frames from this incarnation are dropped
  };
  const Party peer;
  FrameSealer sealer;         ///< under the transport's mutex
  bool accepts_sends = true;  ///< under the transport's mutex
  std::string refusal;        ///< under the transport's mutex: why it accepts none
  FrameOpener opener;
  State state = State::open;
  ucp_ep_h endpoint = nullptr;
  bool endpoint_closing = false;
  std::optional<std::string> broken;  ///< set by UCX's error callback, handled after progress
  bool peer_parted = false;           ///< its goodbye is here
  std::size_t pending = 0;            ///< requests (sends and receives) that UCX still holds
  std::size_t held_back = 0;          ///< frames that wait, by a fault rule
  bool goodbye_waits = false;         ///< for payloads that are being hashed
  std::size_t checking = 0;           ///< payloads that are being hashed
  Nanos deadline{0};                  ///< of draining, parting and left; when gone: for closing a broken endpoint
  Completion closed;

  // Payloads over memory that both share, if the peer is a process of this host and shared memory is among the transports.
  std::optional<ProcessOnHost> process;                                  ///< the peer's, then
  std::atomic<bool> ring_usable{false};                                  ///< any thread: large payloads to the peer go through the ring
  std::unique_ptr<RingSender> ring_out;                                  ///< made here
  std::unique_ptr<RingReceiver> ring_in;                                 ///< made by the peer
  std::map<std::uint64_t, UcxOutgoing*> going_by_ring;                   ///< by the letter's sequence number, until they stand in the peer's slots
  std::map<std::uint64_t, std::unique_ptr<UcxIncoming>> coming_by_ring;  ///< with the slots that they come into
};

class UcxTransport;

/// A letter, or a frame without one, on its way out. Lives until UCX's callback.
struct UcxOutgoing {
  std::shared_ptr<UcxLink> link;
  std::shared_ptr<const Parcel> parcel;  ///< null: a frame without a letter
  std::vector<std::byte> frame;
  std::uint64_t bytes = 0;  ///< counted as in flight
  Completion completion;
  Nanos accepted{0};
  UcxTransport* transport = nullptr;
  bool has_payload = false;
  bool abandoned = false;      ///< completed without UCX: only its callback's memory is left
  std::uint64_t sequence = 0;  ///< of a letter_ahead
};

/// A letter whose payload has not arrived yet: parked, or being received.
struct UcxIncoming {
  UcxTransport* transport;
  std::shared_ptr<UcxLink> link;
  FrameHeader header;
  LetterKind kind;
  kj::Array<capnp::word> words;
  void* descriptor = nullptr;  ///< null: the payload comes by the ring
  Lease lease;
  Nanos arrived{0};
  bool abandoned = false;
};

/// A frame of a peer that is not connected yet.
struct UcxEarly {
  Party sender;
  std::vector<std::byte> frame;
  void* descriptor = nullptr;  ///< null: no payload
  std::size_t bytes = 0;
};

}  // namespace troupe
