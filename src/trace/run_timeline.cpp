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

bool is_lane_row(std::string_view track) { return !track.ends_with(" actor") && track != "transport" && track != "process" && track != "marks"; }

std::optional<std::pair<Step, Step>> steps_held(std::span<const RankTrace> ranks) {
  std::optional<std::pair<Step, Step>> held;
  for (const RankTrace& rank : ranks) {
    if (rank.rank == launcher_clock) continue;
    for (const TraceEvent& event : rank.events) {
      const Step step = event.where.step;
      if (event.kind != TraceEvent::Kind::span || step == Step{0} || !is_lane_row(rank.names[event.track])) continue;
      if (!held) held.emplace(step, step);
      held->first = std::min(held->first, step);
      held->second = std::max(held->second, step);
    }
  }
  return held;
}

Error no_such_steps(std::pair<Step, Step> wanted, std::optional<std::pair<Step, Step>> held) {
  const auto range = [](const std::pair<Step, Step>& steps) { return std::to_string(steps.first.value()) + " to " + std::to_string(steps.second.value()); };
  return Error{"the timelines hold nothing of steps " + range(wanted) + (held ? ", but of steps " + range(*held) : std::string{}) +
               ": the ring buffers keep the newest (trace.events sets how many)"};
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
  timeline.steps = steps;
  const auto held = steps_held(timeline.ranks);
  for (RankTrace& rank : timeline.ranks) {
    // In the order of time: a counter belongs to the step of what stands before it.
    std::ranges::stable_sort(rank.events, {}, [](const TraceEvent& event) { return event.kind == TraceEvent::Kind::span ? event.ended : event.started; });
    keep_steps(rank, steps->first, steps->second);
  }
  if (!steps_held(timeline.ranks)) return no_such_steps(*steps, held);
  return timeline;
}

}  // namespace troupe
