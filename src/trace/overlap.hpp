#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "src/base/clock.hpp"
#include "src/base/ids.hpp"
#include "src/base/result.hpp"
#include "src/trace/trace_event.hpp"

namespace troupe {

/// A span as analysis sees it, from a ring or out of a file.
struct TracedSpan {
  Rank rank;
  std::string track, name;
  Step step;
  Nanos started{0}, ended{0};
};

[[nodiscard]] std::vector<TracedSpan> spans_of(const RankTrace& trace);
/// Spans of all ranks in a file of write_chrome_trace or merge_traces.
[[nodiscard]] Result<std::vector<TracedSpan>> read_spans(const std::filesystem::path& file);

/// How much runs beside each other, over all ranks. Shares are in [0, 1]; 0 where there is nothing to share.
struct TraceOverlap {
  double gathers_under_forwards = 0;  ///< of the time that gathers took, the part during which a forward of the same rank ran
  double reduces_under_backwards = 0;
  double gather_count_under_forwards = 0;  ///< of the gathers, the part that ran beside a forward at least for half of their time
  double compute_busy = 0;                 ///< of the time from a rank's first to its last compute operation, the part with one running
  std::size_t gathers = 0, forwards = 0;
};

/// Looks at steps first … last: operations named "gather …" and "reduce …" of lane comm, "forward …" and "backward …" of lane compute.
[[nodiscard]] TraceOverlap trace_overlap(std::span<const TracedSpan> spans, Step first = Step{0}, Step last = Step{~std::uint64_t{0}});

}  // namespace troupe
