#include "src/trace/run_timeline.hpp"

#include <algorithm>
#include <iterator>

namespace troupe {

void keep_steps(RankTrace& trace, Step first, Step last) {
  bool inside = false;
  std::erase_if(trace.events, [&](const TraceEvent& event) {
    if (event.kind == TraceEvent::Kind::mark) return false;
    if (event.kind != TraceEvent::Kind::slots) inside = event.where.step >= first && event.where.step <= last;
    return !inside;
  });
}

Result<RunTimeline> read_run_timeline(std::span<const std::filesystem::path> files, std::optional<std::pair<Step, Step>> steps) {
  RunTimeline timeline;
  for (const auto& file : files) {
    auto read = read_chrome_trace(file);
    if (!read) return read.error();
    std::ranges::move(*read, std::back_inserter(timeline.ranks));
  }
  std::ranges::sort(timeline.ranks, {}, &RankTrace::rank);
  const auto twice = std::ranges::adjacent_find(timeline.ranks, {}, &RankTrace::rank);
  if (twice != timeline.ranks.end()) return Error{"rank " + std::to_string(twice->rank.value()) + " is in two of the files: they are not of one run"};
  if (timeline.ranks.empty()) return Error{"there are no timelines to join"};
  timeline.clocks = estimate_clocks(timeline.ranks);
  align_clocks(timeline.ranks, timeline.clocks);
  if (!steps) return timeline;
  bool any = false;
  for (RankTrace& rank : timeline.ranks) {
    // In the order of time: a counter belongs to the step of what stands before it.
    std::ranges::stable_sort(rank.events, {}, [](const TraceEvent& event) { return event.kind == TraceEvent::Kind::span ? event.ended : event.started; });
    keep_steps(rank, steps->first, steps->second);
    any = any || std::ranges::any_of(rank.events, [](const TraceEvent& event) { return event.kind == TraceEvent::Kind::span; });
  }
  if (!any)
    return Error{"the timelines hold nothing of steps " + std::to_string(steps->first.value()) + " to " + std::to_string(steps->second.value()) +
                 ": the ring buffers keep the newest (trace.events sets how many)"};
  return timeline;
}

}  // namespace troupe
