#include "src/trace/pack_timeline.hpp"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <unordered_map>

namespace troupe {
namespace {

using nlohmann::json;

/// Columns of numbers by name; the high halves of 64 bits go into a column of their own, nearly all zeros.
class Columns {
 public:
  void u8(const char* name, std::uint64_t value) { put<std::uint8_t>(name, "u8", value); }
  void u16(const char* name, std::uint64_t value) { put<std::uint16_t>(name, "u16", value); }
  void u32(const char* name, std::uint64_t value) { put<std::uint32_t>(name, "u32", value); }

  /// Appends all columns to `bytes`, each at a multiple of four, and tells where.
  [[nodiscard]] json layout(std::string& bytes) const {
    json told = json::object();
    for (const auto& [name, column] : columns_) {
      bytes.resize((bytes.size() + 3) / 4 * 4, '\0');
      told[name] = {{"type", column.type}, {"offset", bytes.size()}, {"length", column.bytes.size() / column.width}};
      bytes += column.bytes;
    }
    return told;
  }

 private:
  struct Column {
    const char* type = nullptr;
    std::size_t width = 1;
    std::string bytes;
  };
  template <class Number>
  void put(const char* name, const char* type, std::uint64_t value) {
    Column& column = columns_[name];
    column.type = type;
    column.width = sizeof(Number);
    const auto small = static_cast<Number>(std::min<std::uint64_t>(value, std::numeric_limits<Number>::max()));
    column.bytes.append(reinterpret_cast<const char*>(&small), sizeof(small));
  }
  std::map<std::string, Column> columns_;
};

std::string deflated(const std::string& bytes) {
  uLongf size = compressBound(static_cast<uLong>(bytes.size()));
  std::string result(size, '\0');
  if (compress2(reinterpret_cast<Bytef*>(result.data()), &size, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uLong>(bytes.size()), 6) != Z_OK)
    throw std::runtime_error("the timeline could not be compressed");
  result.resize(size);
  return result;
}

class Packer {
 public:
  explicit Packer(const RunTimeline& timeline) : timeline_(timeline) {
    for (const RankTrace& rank : timeline.ranks) {
      for (const TraceEvent& event : rank.events) {
        first_ = std::min(first_, event.started);
        last_ = std::max(last_, event.kind == TraceEvent::Kind::span ? event.ended : event.started);
      }
    }
    if (first_ > last_) first_ = last_ = Nanos{0};
  }

  PackedTimeline pack(const std::string& title) {
    json ranks = json::array();
    for (std::size_t i = 0; i < timeline_.ranks.size(); ++i) {
      const RankTrace& rank = timeline_.ranks[i];
      json told{{"rank", rank.rank.value()}, {"label", rank.rank == launcher_clock ? "launcher" : "rank " + std::to_string(rank.rank.value())}};
      if (i < timeline_.clocks.size()) {
        const ClockOffset& clock = timeline_.clocks[i];
        told["clock"] = {{"known", clock.known},     {"offset", clock.offset.count()}, {"error", clock.error.count()},
                         {"letters", clock.letters}, {"drift", clock.drift},           {"aligned", clock.applied}};
      }
      told["overwritten"] = rank.overwritten;
      ranks.push_back(told);
      pack_rank(static_cast<std::uint32_t>(i), rank);
    }
    pack_letters();
    json steps = json::array();
    for (const auto& [step, times] : steps_) steps.push_back({step.value(), since(times.first), since(times.second)});
    std::string bytes;
    PackedTimeline packed;
    const json columns = columns_.layout(bytes);
    packed.compressed = deflated(bytes);
    packed.spans = spans_;
    packed.letters = letters_;
    const json header{{"version", 1},       {"title", title},        {"length", since(last_)}, {"ranks", ranks},      {"names", names_},
                      {"rows", rows_},      {"counters", counters_}, {"marks", marks_},        {"steps", steps},      {"cut", timeline_.steps.has_value()},
                      {"columns", columns}, {"bytes", bytes.size()}, {"spans", spans_},        {"letters", letters_}, {"letters_with_one_end", half_letters_}};
    packed.header = header.dump(-1, ' ', false, json::error_handler_t::replace);
    return packed;
  }

 private:
  [[nodiscard]] std::uint64_t since(Nanos time) const { return static_cast<std::uint64_t>(std::max<std::int64_t>((time - first_).count(), 0)); }

  std::uint32_t name(const std::string& text) {
    const auto [found, fresh] = name_ids_.try_emplace(text, static_cast<std::uint32_t>(name_ids_.size()));
    if (fresh) names_.push_back(text);
    return found->second;
  }

  void time(const char* low, const char* high, std::uint64_t nanos) {
    columns_.u32(low, nanos & 0xffffffffU);
    columns_.u16(high, nanos >> 32U);
  }

  void pack_rank(std::uint32_t index, const RankTrace& rank) {
    std::map<std::uint32_t, std::vector<const TraceEvent*>> tracks, edges;
    for (const TraceEvent& event : rank.events) {
      if (event.kind == TraceEvent::Kind::span) tracks[event.track].push_back(&event);
      if (event.kind == TraceEvent::Kind::slots) edges[event.track].push_back(&event);
      if (event.kind == TraceEvent::Kind::mark) marks_.push_back({index, since(event.started), rank.names[event.name]});
    }
    for (auto& [track, events] : tracks) pack_track(index, rank, track, events);
    for (auto& [edge, events] : edges) {
      std::ranges::stable_sort(events, {}, &TraceEvent::started);
      std::uint64_t before = 0, most = 0;
      for (const TraceEvent* event : events) {
        const std::uint64_t at = since(event->started);
        time("counter.time", "counter.time.high", at - before);
        columns_.u8("counter.value", event->value);
        before = at;
        most = std::max(most, event->value);
      }
      counters_.push_back({{"rank", index}, {"edge", rank.names[edge]}, {"start", counter_samples_}, {"count", events.size()}, {"most", most}});
      counter_samples_ += events.size();
    }
    for (const TraceEvent& event : rank.events) {
      if (event.kind != TraceEvent::Kind::letter_sent && event.kind != TraceEvent::Kind::letter_received) continue;
      const std::uint32_t row = row_of(index, rank.names[event.track]);
      End& end = ends_[event.value];
      (event.kind == TraceEvent::Kind::letter_sent ? end.sent_row : end.received_row) = row;
      (event.kind == TraceEvent::Kind::letter_sent ? end.sent : end.received) = event.started;
      end.name = name(rank.names[event.name]);
      end.step = event.where.step.value();
    }
  }

  /// Spans of a row are disjoint: what overlaps or nests goes into a further row of the same track.
  void pack_track(std::uint32_t index, const RankTrace& rank, std::uint32_t track, std::vector<const TraceEvent*>& events) {
    std::ranges::stable_sort(events, [](const auto* a, const auto* b) { return a->started != b->started ? a->started < b->started : a->ended > b->ended; });
    std::vector<std::vector<const TraceEvent*>> rows;
    std::vector<Nanos> ends;
    for (const TraceEvent* event : events) {
      std::size_t row = 0;
      while (row < ends.size() && ends[row] > event->started) ++row;
      if (row == ends.size()) {
        ends.push_back({});
        rows.emplace_back();
      }
      ends[row] = std::max(event->ended, event->started);
      rows[row].push_back(event);
      if (event->where.step > Step{0} && rank.names[track] == "compute") {
        const auto [found, fresh] = steps_.try_emplace(event->where.step, event->started, event->ended);
        if (!fresh) found->second = {std::min(found->second.first, event->started), std::max(found->second.second, event->ended)};
      }
    }
    for (std::size_t depth = 0; depth < rows.size(); ++depth) {
      if (depth == 0) row_ids_[{index, rank.names[track]}] = static_cast<std::uint32_t>(rows_.size());
      rows_.push_back({{"rank", index}, {"track", rank.names[track]}, {"depth", depth}, {"start", spans_}, {"count", rows[depth].size()}});
      pack_row(rank, rows[depth]);
    }
  }

  void pack_row(const RankTrace& rank, const std::vector<const TraceEvent*>& events) {
    std::uint64_t before = 0;
    for (const TraceEvent* event : events) {
      const std::uint64_t at = since(event->started);
      time("span.time", "span.time.high", at - before);
      time("span.length", "span.length.high", static_cast<std::uint64_t>(std::max<std::int64_t>((event->ended - event->started).count(), 0)));
      const bool waited = event->issued > Nanos{0} && event->issued < event->started;
      columns_.u32("span.queued", waited ? static_cast<std::uint64_t>((event->started - event->issued).count()) : 0);
      columns_.u16("span.name", name(rank.names[event->name]));
      columns_.u8("span.outcome", name(rank.names[event->outcome]) == name("ok") ? 0 : rank.names[event->outcome] == "failed" ? 1 : 2);
      columns_.u32("span.step", event->where.step.value());
      columns_.u16("span.micro", event->where.micro.value());
      columns_.u16("span.unit", event->where.unit.value());
      columns_.u16("span.epoch", event->where.epoch.value());
      before = at;
      ++spans_;
    }
  }

  std::uint32_t row_of(std::uint32_t rank, const std::string& track) {
    const auto found = row_ids_.find({rank, track});
    return found == row_ids_.end() ? no_row : found->second;
  }

  void pack_letters() {
    std::vector<const End*> whole;
    for (const auto& [flow, end] : ends_) {
      if (end.sent_row != no_row && end.received_row != no_row && end.sent != Nanos{-1} && end.received != Nanos{-1})
        whole.push_back(&end);
      else
        ++half_letters_;
    }
    std::ranges::sort(whole, {}, [](const End* end) { return std::tuple(end->sent, end->received, end->sent_row, end->name); });
    std::uint64_t before = 0;
    for (const End* end : whole) {
      const std::uint64_t at = since(end->sent);
      time("letter.time", "letter.time.high", at - before);
      columns_.u32("letter.way", static_cast<std::uint64_t>(std::max<std::int64_t>((end->received - end->sent).count(), 0)));
      columns_.u16("letter.from", end->sent_row);
      columns_.u16("letter.to", end->received_row);
      columns_.u16("letter.name", end->name);
      columns_.u32("letter.step", end->step);
      before = at;
    }
    letters_ = whole.size();
  }

  static constexpr std::uint32_t no_row = ~0U;
  struct End {
    std::uint32_t sent_row = no_row, received_row = no_row, name = 0;
    Nanos sent{-1}, received{-1};
    std::uint64_t step = 0;
  };

  const RunTimeline& timeline_;
  Nanos first_ = Nanos::max(), last_{0};
  Columns columns_;
  json rows_ = json::array(), counters_ = json::array(), marks_ = json::array(), names_ = json::array();
  std::unordered_map<std::string, std::uint32_t> name_ids_;
  std::map<std::pair<std::uint32_t, std::string>, std::uint32_t> row_ids_;
  std::unordered_map<std::uint64_t, End> ends_;
  std::map<Step, std::pair<Nanos, Nanos>> steps_;
  std::size_t spans_ = 0, letters_ = 0, counter_samples_ = 0, half_letters_ = 0;
};

}  // namespace

PackedTimeline pack_timeline(const RunTimeline& timeline, const std::string& title) { return Packer(timeline).pack(title); }

}  // namespace troupe
