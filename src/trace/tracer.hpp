#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "src/device/lane.hpp"

namespace troupe {

/// Where spans come from: handlers (by the actor base), lanes (a Tracer is their LaneObserver) and the transport. Per-rank ring
/// buffers; any thread; never blocks for longer than a copy. `nullptr` where a Tracer* is taken means: off.
class Tracer : public LaneObserver {
 public:
  struct Span {
    Rank rank;
    std::string_view track;  ///< static storage: actor or lane name, "transport"
    std::string name;
    Where where;
    Nanos issued{0}, started{0}, ended{0};
    std::string_view outcome = "ok";  ///< static storage
  };
  virtual void span(Span span) = 0;
  /// One letter: `flow` joins its two ends. `name`: its kind, static storage.
  virtual void letter_sent(Rank rank, std::string_view track, std::string_view name, std::uint64_t flow, const Where& where, Nanos at) = 0;
  virtual void letter_received(Rank rank, std::string_view track, std::string_view name, std::uint64_t flow, const Where& where, Nanos at) = 0;
  /// Slots of an edge in use from now on.
  virtual void slots_in_use(Rank rank, std::string_view edge, std::uint32_t count, Nanos at) = 0;
  /// A point in time worth seeing: a fault, an epoch, a reconfiguration.
  virtual void mark(Rank rank, std::string text, Nanos at) = 0;
  /// A fresh id for a letter.
  [[nodiscard]] virtual std::uint64_t next_flow() = 0;
};

}  // namespace troupe
