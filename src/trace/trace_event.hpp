#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "src/base/clock.hpp"
#include "src/base/ids.hpp"

namespace troupe {

/// One entry of a rank's ring. Strings are indices into the rank's name table.
struct TraceEvent {
  enum class Kind : std::uint8_t { span, letter_sent, letter_received, slots, mark };
  Kind kind = Kind::span;
  std::uint32_t track = 0;  ///< row; slots: the edge
  std::uint32_t name = 0;
  std::uint32_t outcome = 0;  ///< spans
  Where where{};
  Nanos issued{0}, started{0}, ended{0};  ///< all but spans: `started` alone
  std::uint64_t value = 0;                ///< letters: flow; slots: count
};

/// What one rank's ring holds, oldest first.
struct RankTrace {
  Rank rank;
  std::vector<std::string> names;
  std::vector<TraceEvent> events;
  std::uint64_t overwritten = 0;  ///< events that the ring had no room for any more
};

}  // namespace troupe
