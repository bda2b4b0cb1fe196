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
  schema.section("profiling", "Timelines and pictures of the memory of chosen steps.");
  schema.not_built("enable_profiling", false, "write timelines", "see [trace]").alias("profiler.enable_profiling");
  schema.not_built("save_traces_folder", "profile_traces", "folder of the timelines, inside job.dump_folder", "see [trace]")
      .part_of("profiling.enable_profiling")
      .alias("profiler.save_traces_folder");
  schema.not_built("profile_freq", 10, "steps between timelines", "see [trace]")
      .at_least(1)
      .part_of("profiling.enable_profiling")
      .alias("profiler.profile_freq");
  schema.not_built("profiler_active", 1, "steps of one timeline", "see [trace]")
      .at_least(1)
      .part_of("profiling.enable_profiling")
      .alias("profiler.profiler_active");
  schema.ignored("profiler_warmup", 3, "recording a timeline needs no warm-up").at_least(0).alias("profiler.profiler_warmup");
  schema.not_built("enable_memory_snapshot", false, "write pictures of the memory", "pictures of the memory").alias("profiler.enable_memory_snapshot");
  schema.not_built("save_memory_snapshot_folder", "memory_snapshot", "their folder, inside job.dump_folder", "pictures of the memory")
      .part_of("profiling.enable_memory_snapshot")
      .alias("profiler.save_memory_snapshot_folder");
}

}  // namespace troupe
