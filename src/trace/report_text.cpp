#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "src/trace/report.hpp"

namespace troupe {
namespace {

using nlohmann::json;

double ms(Nanos time) { return static_cast<double>(time.count()) / 1e6; }
double mebibytes(std::uint64_t bytes) { return static_cast<double>(bytes) / 1048576.0; }
double share(Nanos part, Nanos whole) { return whole > Nanos{0} ? 100.0 * static_cast<double>(part.count()) / static_cast<double>(whole.count()) : 0.0; }
std::string name_of(Rank rank) { return rank == launcher_clock ? "launcher" : fmt::format("rank {}", rank.value()); }

/// "forward 43.2 %, backward 50.1 %": the largest first.
std::string parts_text(const std::map<std::string, Nanos>& parts, Nanos whole, std::size_t most) {
  std::vector<std::pair<std::string, Nanos>> sorted(parts.begin(), parts.end());
  std::ranges::stable_sort(sorted, std::greater{}, &std::pair<std::string, Nanos>::second);
  std::string text;
  for (std::size_t i = 0; i < sorted.size() && i < most; ++i) {
    if (share(sorted[i].second, whole) < 0.05) break;
    text += fmt::format("{}{} {:.1f} %", i == 0 ? "" : ", ", sorted[i].first, share(sorted[i].second, whole));
  }
  return text;
}

std::string ranks_text(const TraceReport& report) {
  std::string text;
  for (const TraceReport::OfRank& rank : report.ranks) {
    text += fmt::format("\n{}\n", name_of(rank.rank));
    for (const TraceReport::Lane& lane : rank.lanes) {
      text += fmt::format("  {:<10} busy {:>5.1f} %  {}\n", lane.lane, 100 * lane.share, parts_text(lane.kinds, rank.window, 4));
      if (!lane.waits.empty()) text += fmt::format("  {:<10} idle {:>5.1f} %  for {}\n", "", 100 * (1 - lane.share), parts_text(lane.waits, rank.window, 4));
    }
    if (rank.communication > Nanos{0})
      text += fmt::format("  communication {:.3f} ms a step, {:.1f} % of it beside compute, exposed {:.3f} ms; waiting for other ranks {:.3f} ms\n",
                          ms(rank.communication) / static_cast<double>(report.steps), 100 * rank.overlap, ms(rank.exposed) / static_cast<double>(report.steps),
                          ms(rank.for_peers) / static_cast<double>(report.steps));
  }
  return text;
}

std::string path_text(const TraceReport& report) {
  std::string text =
      fmt::format("\ncritical path: {:.3f} ms of {} steps in {} operations: {}; between operations {:.1f} %\n", ms(report.path_length), report.steps,
                  report.path.size(), parts_text(report.path_kinds, report.path_length, 6), share(report.path_gaps, report.path_length));
  std::vector<const TraceReport::Hop*> hops;
  for (const TraceReport::Hop& hop : report.path) hops.push_back(&hop);
  std::ranges::stable_sort(hops, std::greater{}, [](const TraceReport::Hop* hop) { return hop->length + hop->gap; });
  for (std::size_t i = 0; i < hops.size() && i < 8; ++i)
    text += fmt::format("  {:<9} {:<10} {:<18} step {:<5} {:>10.3f} ms, {:>8.3f} ms after what it waited for: {}\n", name_of(hops[i]->rank), hops[i]->lane,
                        hops[i]->operation, hops[i]->step.value(), ms(hops[i]->length), ms(hops[i]->gap), hops[i]->via);
  return text;
}

std::string stragglers_text(const TraceReport& report) {
  std::string text;
  for (const TraceReport::OfRank& rank : report.ranks) {
    if (rank.collectives == 0) continue;
    text += fmt::format("  {:<9} last to come in {:>5.1f} % of {} collectives, kept the others for {:.3f} ms a step; its longest step {:.3f} ms\n",
                        name_of(rank.rank), 100.0 * static_cast<double>(rank.last_in) / static_cast<double>(rank.collectives), rank.collectives,
                        ms(rank.kept_others) / static_cast<double>(report.steps), ms(rank.worst_step));
  }
  return text.empty() ? text : "\nwho keeps whom waiting\n" + text;
}

std::string advice_line(const TraceReport& report, const TraceReport::Advice& advice) {
  const auto lanes = static_cast<std::int64_t>(report.steps * std::max<std::size_t>(report.ranks.size(), 1));
  std::string text = fmt::format("  {:<12} ", advice.edge);
  if (report.replay) text += fmt::format("one more gains {:.3f} ms a step ({:.1f} %); ", ms(advice.gained), share(advice.gained, report.replay->step));
  text += fmt::format("compute waited {:.3f} ms a step for want of one ({:.1f} % of the step)", ms(advice.waited) / static_cast<double>(lanes),
                      share(advice.waited, report.step_time * lanes));
  if (advice.slots > 0) text += fmt::format("; slots.{} = {} takes {:.3f} MiB more on each rank", advice.edge, advice.slots + 1, mebibytes(advice.slot_bytes));
  return text + "\n";
}

std::string advice_text(const TraceReport& report) {
  std::string text = "\nslots that would help";
  if (report.replay)
    text += fmt::format(
        " (the operations played again, each as long as it took, with one slot more of each edge; with those that there are a step is {:.3f} ms then)",
        ms(report.replay->step));
  text += "\n";
  if (report.advice.empty())
    return text + (report.replay ? "  none: one more of any edge gains less than 0.5 % of a step\n" : "  none: compute waited for no free slot of an edge\n");
  for (const TraceReport::Advice& advice : report.advice) text += advice_line(report, advice);
  return text;
}

json json_of(const std::map<std::string, Nanos>& parts) {
  json told = json::object();
  for (const auto& [name, time] : parts) told[name] = ms(time);
  return told;
}

}  // namespace

std::string report_text(const TraceReport& report) {
  std::string text = fmt::format("steps {} to {}: {:.3f} ms a step", report.first.value(), report.last.value(), ms(report.step_time));
  text +=
      fmt::format("; without compute {:.1f} % of the time from a step's first compute operation on any rank to its last (with pipeline stages: the bubble)\n",
                  100 * report.bubble);
  if (report.overwritten > 0) text += fmt::format("{} older events had no room in the ring buffers any more (trace.events)\n", report.overwritten);
  return text + ranks_text(report) + stragglers_text(report) + path_text(report) + advice_text(report);
}

std::string report_json(const TraceReport& report) {
  json ranks = json::array(), path = json::array(), advice = json::array();
  for (const TraceReport::OfRank& rank : report.ranks) {
    json lanes = json::array();
    for (const TraceReport::Lane& lane : rank.lanes)
      lanes.push_back({{"lane", lane.lane},
                       {"busy_ms", ms(lane.busy)},
                       {"busy_share", lane.share},
                       {"operations", lane.operations},
                       {"kinds_ms", json_of(lane.kinds)},
                       {"waits_ms", json_of(lane.waits)}});
    ranks.push_back({{"rank", rank.rank.value()},
                     {"window_ms", ms(rank.window)},
                     {"lanes", lanes},
                     {"communication_ms", ms(rank.communication)},
                     {"exposed_ms", ms(rank.exposed)},
                     {"overlap", rank.overlap},
                     {"waiting_for_ranks_ms", ms(rank.for_peers)},
                     {"collectives", rank.collectives},
                     {"last_to_come", rank.last_in},
                     {"kept_others_ms", ms(rank.kept_others)},
                     {"longest_step_ms", ms(rank.worst_step)}});
  }
  for (const TraceReport::Hop& hop : report.path)
    path.push_back({{"rank", hop.rank.value()},
                    {"lane", hop.lane},
                    {"operation", hop.operation},
                    {"step", hop.step.value()},
                    {"ms", ms(hop.length)},
                    {"gap_ms", ms(hop.gap)},
                    {"waited_for", hop.via}});
  for (const TraceReport::Advice& a : report.advice)
    advice.push_back({{"edge", a.edge}, {"gained_ms", ms(a.gained)}, {"waited_ms", ms(a.waited)}, {"slots", a.slots}, {"slot_bytes", a.slot_bytes}});
  json replay;
  if (report.replay) replay = {{"step_ms", ms(report.replay->step)}, {"with_one_more_ms", json_of(report.replay->with_one_more)}};
  const json all{
      {"first_step", report.first.value()},
      {"last_step", report.last.value()},
      {"steps", report.steps},
      {"step_ms", ms(report.step_time)},
      {"bubble", report.bubble},
      {"ranks", ranks},
      {"critical_path", {{"ms", ms(report.path_length)}, {"gaps_ms", ms(report.path_gaps)}, {"kinds_ms", json_of(report.path_kinds)}, {"hops", path}}},
      {"slots_that_would_help", advice},
      {"replay", replay},
      {"overwritten_events", report.overwritten}};
  return all.dump(1, ' ', false, json::error_handler_t::replace);
}

std::string compare_text(const TraceReport& one, const TraceReport& other, const std::string& name, const std::string& other_name) {
  std::string text = fmt::format("{:<44} {:>16} {:>16} {:>12}\n", "a step", name.substr(0, 16), other_name.substr(0, 16), "change");
  const auto row = [&](const std::string& what, double a, double b, const char* unit) {
    const std::string change = a != 0 ? fmt::format("{:+.1f} %", 100 * (b / a - 1)) : std::string{b == 0 ? "" : "new"};
    text += fmt::format("{:<44} {:>13.3f} {:<2} {:>13.3f} {:<2} {:>12}\n", what, a, unit, b, unit, change);
  };
  row("step", ms(one.step_time), ms(other.step_time), "ms");
  row("without compute", 100 * one.bubble, 100 * other.bubble, "%");
  row("critical path", ms(one.path_length) / static_cast<double>(one.steps), ms(other.path_length) / static_cast<double>(other.steps), "ms");
  for (const TraceReport::OfRank& rank : one.ranks) {
    const auto same = std::ranges::find(other.ranks, rank.rank, &TraceReport::OfRank::rank);
    if (same == other.ranks.end()) {
      text += fmt::format("{}: only in {}\n", name_of(rank.rank), name);
      continue;
    }
    for (const TraceReport::Lane& lane : rank.lanes) {
      const auto twin = std::ranges::find(same->lanes, lane.lane, &TraceReport::Lane::lane);
      if (twin == same->lanes.end()) continue;
      row(fmt::format("{} {} busy", name_of(rank.rank), lane.lane), 100 * lane.share, 100 * twin->share, "%");
      std::map<std::string, std::pair<Nanos, Nanos>> kinds;
      for (const auto& [kind, time] : lane.kinds) kinds[kind].first = time;
      for (const auto& [kind, time] : twin->kinds) kinds[kind].second = time;
      for (const auto& [kind, times] : kinds)
        row("    " + kind, ms(times.first) / static_cast<double>(one.steps), ms(times.second) / static_cast<double>(other.steps), "ms");
    }
    row(fmt::format("{} exposed communication", name_of(rank.rank)), ms(rank.exposed) / static_cast<double>(one.steps),
        ms(same->exposed) / static_cast<double>(other.steps), "ms");
  }
  for (const TraceReport::OfRank& rank : other.ranks)
    if (std::ranges::find(one.ranks, rank.rank, &TraceReport::OfRank::rank) == one.ranks.end())
      text += fmt::format("{}: only in {}\n", name_of(rank.rank), other_name);
  return text;
}

}  // namespace troupe
