#pragma once
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "src/base/ids.hpp"
#include "src/base/schema.hpp"

namespace troupe {

/// [trace]
struct TraceSettings {
  bool enable = false;
  std::vector<std::int64_t> steps;  ///< [first, last]; empty: all that the buffers hold
  std::int64_t events = 1 << 16;    ///< ring buffer of one rank
  /// `steps` as first and last; nothing when empty.
  [[nodiscard]] std::optional<std::pair<Step, Step>> window() const {
    if (steps.size() != 2) return std::nullopt;
    return std::pair{Step{static_cast<std::uint64_t>(steps[0])}, Step{static_cast<std::uint64_t>(steps[1])}};
  }
};

inline void describe(Schema& schema, TraceSettings& s) {
  schema.section("trace", "Timeline of handlers, lanes and letters, as Chrome/Perfetto JSON in RUN/trace.");
  schema.key("enable", &s.enable, KeyClass::live, "record, and write the trace at the end").apart();
  schema.key("steps", &s.steps, KeyClass::live, "[first, last] step to record; empty: the newest events that fit").at_least(1).apart();
  schema.key("events", &s.events, KeyClass::epoch, "events that a rank's ring buffer holds").at_least(1024).at_most(16777216).apart();
}

}  // namespace troupe
