#pragma once
#include <cstdint>
#include <functional>
#include <memory>

#include "src/transport/transport.hpp"

namespace troupe {

/// What becomes of one frame on a loopback network.
struct FrameFate {
  bool drop = false;       ///< never arrives
  bool duplicate = false;  ///< arrives twice; the second is refused as a replay
  bool corrupt = false;    ///< a bit is flipped on the way; refused by its MAC
  bool reorder = false;    ///< arrives after the link's next frame, and is then refused as out of order
  Nanos delay{0};          ///< on top of the network's latency; later frames of the link wait behind it
};

/// Several transports in one process, joined without UCX: the fake behind the Transport seam, with real frames, MACs and slots. Everything
/// arrives through the clock's timers, so a virtual clock makes it deterministic. It must outlive its transports; any thread.
class LoopbackNetwork {
 public:
  /// Asked for each frame in the order of sending: link, the link's frame number from 1, the letter's envelope.
  using Decide = std::function<FrameFate(Rank from, Rank to, std::uint64_t number, schema::Envelope::Reader envelope)>;

  explicit LoopbackNetwork(Clock& clock, Nanos latency = Nanos{0}, Decide decide = {});
  ~LoopbackNetwork();
  LoopbackNetwork(const LoopbackNetwork&) = delete;
  LoopbackNetwork& operator=(const LoopbackNetwork&) = delete;

  /// A process on this network. The transport must go before the network.
  [[nodiscard]] std::unique_ptr<Transport> join(const TransportOptions& options, TransportHandlers handlers);
  /// The process of that rank is gone at once: its peers hear peer_lost after `notice`, letters to it fail.
  void kill(Rank rank, Nanos notice);

  struct Wires;  ///< of loopback.cpp

 private:
  std::shared_ptr<Wires> wires_;
};

}  // namespace troupe
