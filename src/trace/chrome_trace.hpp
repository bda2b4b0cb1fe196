#pragma once
#include <filesystem>
#include <iosfwd>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "src/base/result.hpp"
#include "src/trace/run_timeline.hpp"

namespace troupe {

/// Writes Chrome's trace format (read by Perfetto, chrome://tracing, speedscope), one event a line:
/// a process for each rank; a row for each lane, actor and the transport with its spans, which nest or are disjoint (what overlaps
/// gets a further row); the wait of an operation in its lane's queue as an async span "compute queue"; letters as flow arrows;
/// slots in use as counters; marks as instants. Times are microseconds with three decimals since the earliest event, whose time
/// is otherData.origin_ns (CLOCK_MONOTONIC, as text). Args of a span: epoch, step, micro, unit, issued, queued (microseconds), outcome.
/// `clocks`, where given, are told in otherData.clocks: rank, offset_us, error_us, drift, letters, aligned. Then the file joins several processes', and only
/// letters whose both ends are in it are arrows.
void write_chrome_trace(std::span<const RankTrace> ranks, std::ostream& out, std::span<const ClockOffset> clocks = {});
/// The same into a file, written beside it and renamed.
[[nodiscard]] Result<void> write_chrome_trace(std::span<const RankTrace> ranks, const std::filesystem::path& file, std::span<const ClockOffset> clocks = {});

/// What the launcher calls its own file.
inline constexpr const char* launcher_trace = "launcher.json";
/// The files rank-N.json of a run's trace folder, in the order of ranks, and launcher.json after them; empty where there are none.
[[nodiscard]] std::vector<std::filesystem::path> rank_traces(const std::filesystem::path& folder);
/// Joins the files of several ranks into one, on one clock, cut to `steps` where given.
[[nodiscard]] Result<RunTimeline> merge_traces(std::span<const std::filesystem::path> files, const std::filesystem::path& out,
                                               std::optional<std::pair<Step, Step>> steps = {});

}  // namespace troupe
