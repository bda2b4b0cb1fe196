#include "src/trace/overlap.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

namespace troupe {
namespace {

struct Interval {
  Nanos start, end;
};
using Intervals = std::vector<Interval>;

/// Sorted and without overlaps.
Intervals joined(Intervals intervals) {
  std::sort(intervals.begin(), intervals.end(), [](const auto& a, const auto& b) { return a.start < b.start; });
  Intervals result;
  for (const auto& interval : intervals) {
    if (!result.empty() && interval.start <= result.back().end)
      result.back().end = std::max(result.back().end, interval.end);
    else
      result.push_back(interval);
  }
  return result;
}

Nanos covered(const Interval& interval, const Intervals& by) {
  Nanos total{0};
  for (const auto& other : by) total += std::max(Nanos{0}, std::min(interval.end, other.end) - std::max(interval.start, other.start));
  return total;
}

struct Totals {
  Nanos length{0}, under{0};
  std::size_t mostly_under = 0;
  void add(const Intervals& intervals, const Intervals& by) {
    for (const auto& interval : intervals) {
      const Nanos part = covered(interval, by);
      length += interval.end - interval.start;
      under += part;
      if (2 * part >= interval.end - interval.start && part > Nanos{0}) ++mostly_under;
    }
  }
  [[nodiscard]] double share() const { return length > Nanos{0} ? static_cast<double>(under.count()) / static_cast<double>(length.count()) : 0.0; }
};

/// "compute" of "compute 2": spans of one track that overlap are drawn in further rows.
std::string track_of(std::string row) {
  const std::size_t number = row.find_last_not_of("0123456789");
  if (number != std::string::npos && number + 1 < row.size() && row[number] == ' ') row.resize(number);
  return row;
}

}  // namespace

std::vector<TracedSpan> spans_of(const RankTrace& trace) {
  std::vector<TracedSpan> spans;
  for (const auto& event : trace.events) {
    if (event.kind == TraceEvent::Kind::span)
      spans.push_back({trace.rank, trace.names[event.track], trace.names[event.name], event.where.step, event.started, event.ended});
  }
  return spans;
}

Result<std::vector<TracedSpan>> read_spans(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return Error{"cannot read the trace " + file.string()};
  const auto content = nlohmann::json::parse(in, nullptr, false);
  if (content.is_discarded() || !content.is_object() || !content.contains("traceEvents"))
    return Error{file.string() + " is not a trace: it has no traceEvents"};
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::string> tracks;
  std::vector<TracedSpan> spans;
  try {
    for (const auto& event : content.at("traceEvents")) {
      const std::string phase = event.at("ph");
      const std::pair<std::uint32_t, std::uint32_t> row{event.at("pid"), event.at("tid")};
      if (phase == "M" && event.at("name") == "thread_name") tracks[row] = track_of(event.at("args").at("name"));
      if (phase != "X" || !event.at("args").contains("outcome")) continue;
      const Nanos start{std::llround(event.at("ts").get<double>() * 1000)}, length{std::llround(event.at("dur").get<double>() * 1000)};
      spans.push_back({Rank{row.first}, tracks[row], event.at("name"), Step{event.at("args").at("step")}, start, start + length});
    }
  } catch (const nlohmann::json::exception& problem) {
    return Error{file.string() + " is not a trace that this program wrote: " + problem.what()};
  }
  return spans;
}

TraceOverlap trace_overlap(std::span<const TracedSpan> spans, Step first, Step last) {
  std::set<Rank> ranks;
  for (const auto& span : spans) ranks.insert(span.rank);
  TraceOverlap result;
  Totals gathers, reduces;
  Nanos busy{0}, window{0};
  for (const Rank rank : ranks) {
    const auto named = [&](std::string_view track, std::string_view start) {
      Intervals found;
      for (const auto& span : spans) {
        if (span.rank == rank && span.step >= first && span.step <= last && span.track == track && span.name.starts_with(start))
          found.push_back({span.started, span.ended});
      }
      return found;
    };
    const auto gather = named("comm", "gather"), forward = named("compute", "forward"), compute = joined(named("compute", ""));
    gathers.add(gather, joined(forward));
    reduces.add(named("comm", "reduce"), joined(named("compute", "backward")));
    result.gathers += gather.size();
    result.forwards += forward.size();
    for (const auto& interval : compute) busy += interval.end - interval.start;
    if (!compute.empty()) window += compute.back().end - compute.front().start;
  }
  result.gathers_under_forwards = gathers.share();
  result.reduces_under_backwards = reduces.share();
  if (result.gathers > 0) result.gather_count_under_forwards = static_cast<double>(gathers.mostly_under) / static_cast<double>(result.gathers);
  if (window > Nanos{0}) result.compute_busy = static_cast<double>(busy.count()) / static_cast<double>(window.count());
  return result;
}

}  // namespace troupe
