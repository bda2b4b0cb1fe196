#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/base/ids.hpp"
#include "src/base/schema.hpp"

namespace troupe {

/// [trace]
struct TraceSettings {
  bool enable = true;
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
  schema.key("enable", &s.enable, KeyClass::live, "keep the newest events, for troupe trace RUN, and write them to RUN/trace at the end").apart();
  schema.key("steps", &s.steps, KeyClass::live, "[first, last] step to record; empty: the newest events that fit").at_least(1).apart();
  schema.key("events", &s.events, KeyClass::epoch, "events that a rank's ring buffer holds").at_least(1024).at_most(16777216).apart();
}

/// [profiling]
struct ProfilingSettings {
  bool enable_profiling = false;
  std::string save_traces_folder = "profile_traces";
  std::int64_t profile_freq = 10, profiler_active = 1;
  bool enable_memory_snapshot = false;
  std::string save_memory_snapshot_folder = "memory_snapshot";
  /// Steps whose number this divides are the last of a timeline, and those of a picture of the memory.
  [[nodiscard]] bool due(Step step) const noexcept { return step.value() % static_cast<std::uint64_t>(profile_freq) == 0; }
};

inline void describe(Schema& schema, ProfilingSettings& s) {
  schema.section("profiling", "Timelines and pictures of the memory of chosen steps, for every rank.");
  const auto key = [&](const char* name, KeyTarget member, std::string doc) -> Key& {
    return schema.key(name, member, KeyClass::frozen, std::move(doc)).apart().alias(std::string("profiler.") + name);
  };
  key("enable_profiling", &s.enable_profiling, "write a timeline every profile_freq steps: FOLDER/iteration_N/rankR_trace.json");
  key("save_traces_folder", &s.save_traces_folder, "folder of the timelines, inside job.dump_folder");
  key("profile_freq", &s.profile_freq, "steps between timelines, and between pictures of the memory").at_least(1);
  key("profiler_active", &s.profiler_active, "steps of one timeline: those up to the one whose number profile_freq divides").at_least(1);
  schema.ignored("profiler_warmup", 3, "recording a timeline needs no warm-up").alias("profiler.profiler_warmup").at_least(0);
  key("enable_memory_snapshot", &s.enable_memory_snapshot,
      "write what lies where and who holds what every profile_freq steps: FOLDER/iteration_N/rankR_memory_snapshot.json");
  key("save_memory_snapshot_folder", &s.save_memory_snapshot_folder, "folder of the pictures, inside job.dump_folder");
}

}  // namespace troupe
