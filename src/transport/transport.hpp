#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "messages/frame.hpp"
#include "messages/letter.hpp"
#include "src/base/clock.hpp"
#include "src/base/ids.hpp"
#include "src/base/result.hpp"

namespace troupe {

class LetterFaults;
class Tracer;

/// How a link ends. `flush`: what was sent before arrives first. `force`: at once; pending sends complete with an error.
enum class CloseMode : std::uint8_t { flush, force };

/// Called once for each send or close, on the transport's thread (or at once, in the caller's, if it cannot even start); must not block.
using Completion = std::function<void(const Result<void>&)>;

/// What a process does with what arrives. All are called on the transport's thread and must not block; none may be empty but `peer_left`.
struct TransportHandlers {
  /// A letter that was checked. With a payload its lease is the slot that `slot_for` gave; envelope.where.slot is the sender's slot.
  std::function<void(std::shared_ptr<const Parcel>)> letter;
  /// A slot to receive a payload of so many bytes into; an empty lease means "not now": the payload waits at its sender, is asked for
  /// again after slot_available(), and holds nothing else up. The envelope is checked, and valid during the call only.
  std::function<Lease(schema::Envelope::Reader envelope, std::uint64_t bytes)> slot_for;
  /// The peer died or its link broke; called once for each connect(). Everything pending to it has been, or will be, completed with an error.
  std::function<void(Rank peer, const std::string& cause)> peer_lost;
  /// The peer closed its link cleanly; later sends to it fail.
  std::function<void(Rank peer)> peer_left;
};

/// How much went over a process's transport, and what was refused.
struct TransportCounters {
  std::uint64_t letters_sent = 0, letters_received = 0;
  std::uint64_t payload_bytes_sent = 0, payload_bytes_received = 0;
  std::uint64_t in_flight_bytes = 0, in_flight_peak = 0;     ///< accepted by send(), not yet completed
  std::uint64_t parked = 0;                                  ///< payloads that wait for a slot now
  std::uint64_t payload_bytes_shared = 0;                    ///< of those sent, through memory shared with the receiver
  std::array<std::uint64_t, frame_problem_count> refused{};  ///< frames dropped, by reason (messages/frame.hpp)
};

/// Moves letters and their payloads between processes. A peer is a process, named by its first rank (launcher_rank: the launcher's).
/// Letters without a payload from one peer arrive in the order sent; a payload may arrive after later letters. All methods may be
/// called from any thread and never block, the destructor excepted: it closes by force and joins the transport's thread.
class Transport {
 public:
  virtual ~Transport() = default;

  /// Where peers reach this process: opaque bytes, for connect() in another process.
  [[nodiscard]] virtual std::string address() const = 0;

  /// Opens the link to a peer. Frames of another incarnation of that rank are refused from now on. Letters that the peer sent before
  /// this call are held until now. An Error names the peer and what UCX said.
  [[nodiscard]] virtual Result<void> connect(Rank peer, Incarnation incarnation, const std::string& address) = 0;

  /// Sends a letter; a lease that is not empty makes its bytes the payload. The transport holds parcel and lease until `completion`:
  /// for a payload that is when it stands in the receiver's slot, otherwise when the bytes have been handed over. A letter that cannot
  /// be delivered (no such peer, peer lost, too long, too much in flight) completes with an Error. A payload
  /// that goes over a network is read once, in the caller, for its hash; between processes of one host, where it is copied.
  virtual void send(Rank peer, std::shared_ptr<const Parcel> parcel, Completion completion) = 0;

  /// Ends the link: no letter is sent or received over it from here on. `flush` falls back to force after `limit`. May be empty.
  virtual void close(Rank peer, CloseMode mode, Nanos limit, Completion completion) = 0;

  /// A slot went home: parked payloads ask again.
  virtual void slot_available() = 0;

  [[nodiscard]] virtual TransportCounters counters() const = 0;
};

/// What every transport needs to know. References outlive the transport.
struct TransportOptions {
  Session session;                                         ///< job and key, the same in all processes of the job
  Party self;                                              ///< this process's first rank and its incarnation
  std::string transports = "sysv,cma,tcp";                 ///< UCX_TLS
  std::string devices = "lo";                              ///< UCX_NET_DEVICES: loopback unless the config names an interface
  Nanos keepalive = std::chrono::milliseconds(200);        ///< how often UCX looks whether peers live
  std::uint64_t in_flight_limit = std::uint64_t{1} << 30;  ///< bytes accepted by send() and not completed; more is refused
  Tracer* tracer = nullptr;                                ///< null: off
  LetterFaults* faults = nullptr;                          ///< null: none; asked for each letter that is sent
};

/// UCX 1.22: one worker, one thread that sleeps until something happens. Throws std::runtime_error, with what UCX said, if it cannot start.
[[nodiscard]] std::unique_ptr<Transport> make_ucx_transport(const TransportOptions& options, const Clock& clock, TransportHandlers handlers);

}  // namespace troupe
