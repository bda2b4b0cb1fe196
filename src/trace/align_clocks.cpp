#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "src/trace/run_timeline.hpp"

namespace troupe {
namespace {

constexpr std::size_t windows = 8;  ///< that a timeline is cut into to see a drift
constexpr std::size_t enough_windows = 4;

/// A letter's two ends: when it left by the clock of its sender, and when it came by the receiver's.
struct Passage {
  Nanos sent, received;
};
using Pair = std::pair<std::size_t, std::size_t>;  ///< sender, receiver: places in the list of ranks
using Passages = std::map<Pair, std::vector<Passage>>;

Passages passages_of(std::span<const RankTrace> ranks) {
  struct Sent {
    std::size_t rank;
    Nanos at;
  };
  std::unordered_map<std::uint64_t, Sent> sent;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const TraceEvent& event : ranks[rank].events)
      if (event.kind == TraceEvent::Kind::letter_sent) sent.try_emplace(event.value, Sent{rank, event.started});
  }
  Passages passages;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const TraceEvent& event : ranks[rank].events) {
      if (event.kind != TraceEvent::Kind::letter_received) continue;
      const auto found = sent.find(event.value);
      if (found != sent.end() && found->second.rank != rank) passages[{found->second.rank, rank}].push_back({found->second.at, event.started});
    }
  }
  return passages;
}

/// The clock of `to` minus that of `from`, somewhere in a time.
struct Estimate {
  double offset = 0, error = 0;  ///< nanoseconds
  double at = 0;                 ///< by the clock of `from`
};

/// There: received − sent = offset + way; back: received − sent = −offset + way. The shortest of each bound the offset.
std::optional<Estimate> bound(std::span<const Passage> there, std::span<const Passage> back, double from, double until) {
  std::optional<double> shortest_there, shortest_back;
  for (const Passage& passage : there) {
    const auto at = static_cast<double>(passage.sent.count());
    if (at < from || at >= until) continue;
    const auto way = static_cast<double>((passage.received - passage.sent).count());
    shortest_there = std::min(way, shortest_there.value_or(way));
  }
  for (const Passage& passage : back) {
    const auto at = static_cast<double>(passage.received.count());
    if (at < from || at >= until) continue;
    const auto way = static_cast<double>((passage.received - passage.sent).count());
    shortest_back = std::min(way, shortest_back.value_or(way));
  }
  if (!shortest_there || !shortest_back) return std::nullopt;
  return Estimate{(*shortest_there - *shortest_back) / 2, std::abs(*shortest_there + *shortest_back) / 2, (from + until) / 2};
}

struct Line {
  double offset = 0, drift = 0, error = 0, middle = 0;
  std::size_t letters = 0;
};

/// One line through the estimates of several windows, weighted by how sure they are; a constant where there are few.
std::optional<Line> line_of(std::span<const Passage> there, std::span<const Passage> back) {
  double first = 1e300, last = -1e300;
  for (const Passage& passage : there) {
    first = std::min(first, static_cast<double>(passage.sent.count()));
    last = std::max(last, static_cast<double>(passage.sent.count()));
  }
  for (const Passage& passage : back) {
    first = std::min(first, static_cast<double>(passage.received.count()));
    last = std::max(last, static_cast<double>(passage.received.count()));
  }
  const auto whole = bound(there, back, first, last + 1);
  if (!whole) return std::nullopt;
  const Line constant{whole->offset, 0, whole->error, whole->at, there.size() + back.size()};
  std::vector<Estimate> estimates;
  const double width = (last - first + 1) / static_cast<double>(windows);
  for (std::size_t i = 0; i < windows; ++i) {
    const double from = first + static_cast<double>(i) * width;
    if (const auto estimate = bound(there, back, from, from + width)) estimates.push_back(*estimate);
  }
  if (estimates.size() < enough_windows) return constant;
  double weights = 0, mean_at = 0, mean_offset = 0, error = 0;
  for (const Estimate& e : estimates) {
    const double weight = 1 / std::max(1.0, e.error * e.error);
    weights += weight;
    mean_at += weight * e.at;
    mean_offset += weight * e.offset;
    error = std::max(error, e.error);
  }
  mean_at /= weights;
  mean_offset /= weights;
  double above = 0, below = 0;
  for (const Estimate& e : estimates) {
    const double weight = 1 / std::max(1.0, e.error * e.error);
    above += weight * (e.at - mean_at) * (e.offset - mean_offset);
    below += weight * (e.at - mean_at) * (e.at - mean_at);
  }
  const double drift = below > 0 ? above / below : 0;
  // A slope that the windows' errors explain is none.
  if (std::abs(drift) * (last - first) <= 2 * error) return constant;
  double least = error;
  for (const Estimate& e : estimates) least = std::min(least, e.error);
  return Line{mean_offset + drift * (whole->at - mean_at), drift, least, whole->at, constant.letters};
}

}  // namespace

std::vector<ClockOffset> estimate_clocks(std::span<const RankTrace> ranks) {
  std::vector<ClockOffset> clocks;
  for (const RankTrace& rank : ranks) clocks.push_back({.rank = rank.rank});
  if (ranks.empty()) return clocks;
  const Passages passages = passages_of(ranks);
  std::map<Pair, Line> lines;
  for (const auto& [pair, there] : passages) {
    const auto back = passages.find({pair.second, pair.first});
    if (back == passages.end()) continue;
    if (const auto line = line_of(there, back->second)) lines.emplace(pair, *line);
  }
  // From the launcher, or the first rank, outwards by the least error.
  std::size_t reference = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i)
    if (ranks[i].rank == launcher_clock) reference = i;
  clocks[reference].known = true;
  for (std::size_t round = 1; round < ranks.size(); ++round) {
    std::optional<std::tuple<double, Pair>> best;
    for (const auto& [pair, line] : lines) {
      if (!clocks[pair.first].known || clocks[pair.second].known) continue;
      const double error = line.error + static_cast<double>(clocks[pair.first].error.count());
      if (!best || error < std::get<0>(*best)) best = std::tuple{error, pair};
    }
    if (!best) break;
    const auto& [error, pair] = *best;
    const Line& line = lines.at(pair);
    ClockOffset& clock = clocks[pair.second];
    clock.known = true;
    clock.offset = clocks[pair.first].offset + Nanos{std::llround(line.offset)};
    clock.error = Nanos{std::llround(error)};
    clock.drift = clocks[pair.first].drift + line.drift;
    clock.letters = line.letters;
    clock.middle = Nanos{std::llround(line.middle)} - clocks[pair.first].offset;
  }
  return clocks;
}

void align_clocks(std::vector<RankTrace>& ranks, std::vector<ClockOffset>& clocks) {
  std::unordered_map<std::uint64_t, Nanos> sent;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    ClockOffset& clock = clocks[i];
    clock.applied = clock.known && (std::chrono::abs(clock.offset) > clock.error || clock.drift != 0);
    const auto moved = [&](Nanos time) {
      const double since = static_cast<double>((time - clock.offset - clock.middle).count());
      return time - clock.offset - Nanos{std::llround(clock.drift * since)};
    };
    for (TraceEvent& event : ranks[i].events) {
      if (clock.applied) {
        if (event.kind == TraceEvent::Kind::span && event.issued != Nanos{0}) event.issued = moved(event.issued);
        event.started = moved(event.started);
        if (event.kind == TraceEvent::Kind::span) event.ended = moved(event.ended);
      }
      if (event.kind == TraceEvent::Kind::letter_sent) sent[event.value] = event.started;
    }
  }
  // A handler's `issued` is when its letter left, by the clock of the sender.
  const bool any = std::ranges::any_of(clocks, &ClockOffset::applied);
  for (RankTrace& rank : ranks) {
    if (!any) break;
    std::map<std::pair<std::uint32_t, Nanos>, Nanos> left;  // track and start of a handler
    for (const TraceEvent& event : rank.events) {
      if (event.kind != TraceEvent::Kind::letter_received) continue;
      if (const auto found = sent.find(event.value); found != sent.end()) left[{event.track, event.started}] = found->second;
    }
    for (TraceEvent& event : rank.events) {
      if (event.kind != TraceEvent::Kind::span) continue;
      if (const auto found = left.find({event.track, event.started}); found != left.end()) event.issued = std::min(found->second, event.started);
    }
  }
}

std::string describe(std::span<const ClockOffset> clocks) {
  const auto name = [](Rank rank) { return rank == launcher_clock ? std::string("the launcher") : "rank " + std::to_string(rank.value()); };
  std::string text;
  for (const ClockOffset& clock : clocks) {
    if (clock.letters == 0 && clock.known) continue;  // the reference
    if (!clock.known) {
      text += fmt::format("{}: its clock is taken as it is, for no letters went both ways between it and another\n", name(clock.rank));
      continue;
    }
    text += fmt::format("{}: clock off by {:+.3f} ms ± {:.3f} ms", name(clock.rank), static_cast<double>(clock.offset.count()) / 1e6,
                        static_cast<double>(clock.error.count()) / 1e6);
    if (clock.drift != 0) text += fmt::format(", drifting by {:+.2f} µs a second", clock.drift * 1e6);
    text += fmt::format(" ({} letters){}\n", clock.letters, clock.applied ? ", aligned" : ", within its error: left as it is");
  }
  return text;
}

}  // namespace troupe
