#include "src/trace/chrome_trace.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <limits>
#include <map>
#include <ostream>
#include <string>
#include <system_error>
#include <unordered_map>

namespace troupe {
namespace {

/// The length of a well-formed UTF-8 sequence at `text`, 0 if there is none.
std::size_t sequence_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  const std::size_t length = first < 0x80 ? 1 : first >= 0xc2 && first < 0xe0 ? 2 : first >= 0xe0 && first < 0xf0 ? 3 : first >= 0xf0 && first < 0xf5 ? 4 : 0;
  if (length == 0 || length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const bool overlong = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xf0 && byte(1) < 0x90);
  const bool out_of_range = (first == 0xed && byte(1) >= 0xa0) || (first == 0xf4 && byte(1) >= 0x90);
  return overlong || out_of_range ? 0 : length;
}

std::string json_string(std::string_view text) {
  std::string result = "\"";
  while (!text.empty()) {
    const std::size_t length = sequence_length(text);
    const char letter = text[0];
    if (length == 0) {
      result += "\\ufffd";
    } else if (letter == '"' || letter == '\\') {
      result += {'\\', letter};
    } else if (static_cast<unsigned char>(letter) < 0x20) {
      std::array<char, 8> code{};
      std::snprintf(code.data(), code.size(), "\\u%04x", static_cast<unsigned>(letter));
      result += code.data();
    } else {
      result += text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return result + '"';
}

/// Microseconds with exactly three decimals; not negative.
std::string microseconds(Nanos time) {
  std::array<char, 32> text{};
  const std::int64_t nanos = std::max<std::int64_t>(time.count(), 0);
  std::snprintf(text.data(), text.size(), "%lld.%03lld", static_cast<long long>(nanos / 1000), static_cast<long long>(nanos % 1000));
  return text.data();
}

/// What starts before an event's own time: an operation that waited.
Nanos earliest(const TraceEvent& event) {
  return event.kind == TraceEvent::Kind::span && event.issued > Nanos{0} ? std::min(event.issued, event.started) : event.started;
}

Nanos origin_of(std::span<const RankTrace> ranks) {
  Nanos origin = Nanos::max();
  for (const auto& rank : ranks) {
    for (const auto& event : rank.events) origin = std::min(origin, earliest(event));
  }
  return origin == Nanos::max() ? Nanos{0} : origin;
}

/// Rows of one track: spans sorted by start, each put where it nests in what is open or follows what has ended.
class TrackRows {
 public:
  std::size_t place(Nanos start, Nanos end) {
    for (std::size_t row = 0; row < open_.size(); ++row) {
      auto& ends = open_[row];
      while (!ends.empty() && ends.back() <= start) ends.pop_back();
      if (ends.empty() || end <= ends.back()) {
        ends.push_back(end);
        return row;
      }
    }
    open_.push_back({end});
    return open_.size() - 1;
  }

 private:
  std::vector<std::vector<Nanos>> open_;  ///< ends of the spans that a row is in, outermost first
};

/// Which letters are drawn as arrows: of one process's file all, for their other ends are in another's; of a joined file those with both ends, for a viewer
/// refuses the others, and the ring buffers hold some letters at one end alone.
class Arrows {
 public:
  Arrows(std::span<const RankTrace> ranks, bool joined) : joined_(joined) {
    for (std::size_t i = 0; joined && i < ranks.size(); ++i) {
      for (const auto& event : ranks[i].events) {
        if (event.kind == TraceEvent::Kind::letter_sent) ends_[event.value] |= 1U;
        if (event.kind == TraceEvent::Kind::letter_received) ends_[event.value] |= 2U;
      }
    }
  }
  [[nodiscard]] bool drawn(std::uint64_t flow) const { return !joined_ || ends_.at(flow) == 3; }

 private:
  bool joined_;
  std::unordered_map<std::uint64_t, std::uint8_t> ends_;  ///< by flow: 1 left, 2 taken up
};

class RankWriter {
 public:
  RankWriter(const RankTrace& trace, Nanos origin, std::ostream& out, bool& first, std::uint64_t& async_id, const Arrows& arrows)
      : trace_(trace), origin_(origin), out_(out), first_(first), async_id_(async_id), arrows_(arrows), pid_("\"pid\":" + std::to_string(trace.rank.value())) {}

  void write() {
    const std::string title = trace_.rank == launcher_clock ? "launcher" : "rank " + std::to_string(trace_.rank.value());
    metadata("process_name", 0, "\"name\":" + json_string(title));
    metadata("process_sort_index", 0, "\"sort_index\":" + std::to_string(trace_.rank.value()));
    metadata("thread_name", 0, "\"name\":\"marks\"");
    for (const auto& [track, events] : by_track()) write_track(track, events);
    for (const auto& event : trace_.events) {
      if (event.kind == TraceEvent::Kind::slots)
        line("C", 0, at(event.started), "slots " + name(event.name), "\"args\":{\"in use\":" + std::to_string(event.value) + "}");
      else if (event.kind == TraceEvent::Kind::mark)
        line("i", 0, at(event.started), name(event.name), "\"s\":\"p\"");
    }
  }

 private:
  using Events = std::vector<const TraceEvent*>;

  [[nodiscard]] const std::string& name(std::uint32_t id) const { return trace_.names[id]; }
  [[nodiscard]] std::string at(Nanos time) const { return microseconds(time - origin_); }

  [[nodiscard]] std::map<std::uint32_t, Events> by_track() const {
    std::map<std::uint32_t, Events> tracks;
    for (const auto& event : trace_.events) {
      if (event.kind != TraceEvent::Kind::slots && event.kind != TraceEvent::Kind::mark) tracks[event.track].push_back(&event);
    }
    // An outer span before the inner ones that start with it.
    for (auto& [track, events] : tracks)
      std::stable_sort(events.begin(), events.end(),
                       [](const auto* a, const auto* b) { return a->started != b->started ? a->started < b->started : end_of(*a) > end_of(*b); });
    return tracks;
  }

  /// A letter is drawn as a span of one nanosecond, the shortest that nests in any other: an arrow needs a span to start from.
  static Nanos end_of(const TraceEvent& event) {
    return std::max(event.kind == TraceEvent::Kind::span ? event.ended : event.started + Nanos{1}, event.started + Nanos{1});
  }

  void write_track(std::uint32_t track, const Events& events) {
    TrackRows rows;
    std::vector<std::uint32_t> ids;
    for (const auto* event : events) {
      const std::size_t row = rows.place(event->started, end_of(*event));
      if (row == ids.size()) {
        ids.push_back(++threads_);
        metadata("thread_name", ids[row], "\"name\":" + json_string(name(track) + (row == 0 ? "" : " " + std::to_string(row + 1))));
        metadata("thread_sort_index", ids[row], "\"sort_index\":" + std::to_string(ids[row]));
      }
      if (event->kind == TraceEvent::Kind::span)
        span(*event, ids[row]);
      else
        letter(*event, ids[row]);
    }
  }

  void span(const TraceEvent& event, std::uint32_t row) {
    const bool waited = event.issued > Nanos{0} && event.issued < event.started;
    std::string args = where(event.where) + ",\"outcome\":" + json_string(name(event.outcome));
    if (event.issued > Nanos{0}) args += ",\"issued\":" + at(event.issued) + ",\"queued\":" + microseconds(event.started - event.issued);
    line("X", row, at(event.started), name(event.name), "\"dur\":" + microseconds(end_of(event) - event.started) + ",\"args\":{" + args + "}");
    if (!waited) return;
    const std::string id = ",\"id\":" + std::to_string(++async_id_), queue = name(event.track) + " queue";
    line("b", row, at(event.issued), queue, "\"cat\":\"queue\"" + id + ",\"args\":{\"operation\":" + json_string(name(event.name)) + "}");
    line("e", row, at(event.started), queue, "\"cat\":\"queue\"" + id);
  }

  void letter(const TraceEvent& event, std::uint32_t row) {
    const bool sent = event.kind == TraceEvent::Kind::letter_sent;
    const std::string args = "\"args\":{" + where(event.where) + "}";
    line("X", row, at(event.started), (sent ? "send " : "receive ") + name(event.name), "\"dur\":0.001," + args);
    if (!arrows_.drawn(event.value)) return;
    line(sent ? "s" : "f", row, at(event.started), name(event.name),
         std::string(sent ? "" : "\"bp\":\"e\",") + "\"cat\":\"letter\",\"id\":" + std::to_string(event.value));
  }

  static std::string where(const Where& where) {
    return "\"epoch\":" + std::to_string(where.epoch.value()) + ",\"step\":" + std::to_string(where.step.value()) +
           ",\"micro\":" + std::to_string(where.micro.value()) + ",\"unit\":" + std::to_string(where.unit.value());
  }

  void metadata(const char* kind, std::uint32_t row, const std::string& args) { line("M", row, "0.000", kind, "\"args\":{" + args + "}"); }

  void line(const char* phase, std::uint32_t row, const std::string& time, const std::string& title, const std::string& rest) {
    out_ << (first_ ? "\n" : ",\n") << "{\"ph\":\"" << phase << "\"," << pid_ << ",\"tid\":" << row << ",\"ts\":" << time << ",\"name\":" << json_string(title)
         << ',' << rest << '}';
    first_ = false;
  }

  const RankTrace& trace_;
  Nanos origin_;
  std::ostream& out_;
  bool& first_;
  std::uint64_t& async_id_;
  const Arrows& arrows_;
  std::string pid_;
  std::uint32_t threads_ = 0;  ///< rows so far; 0 holds marks and counters
};

std::string json_of(std::span<const ClockOffset> clocks) {
  std::string text;
  for (const ClockOffset& clock : clocks) {
    std::array<char, 256> line{};
    std::snprintf(line.data(), line.size(), "%s{\"rank\":%u,\"known\":%s,\"offset_us\":%.3f,\"error_us\":%.3f,\"drift\":%.3e,\"letters\":%zu,\"aligned\":%s}",
                  text.empty() ? "" : ",", clock.rank.value(), clock.known ? "true" : "false", static_cast<double>(clock.offset.count()) / 1e3,
                  static_cast<double>(clock.error.count()) / 1e3, clock.drift, clock.letters, clock.applied ? "true" : "false");
    text += line.data();
  }
  return "[" + text + "]";
}

constexpr std::uint32_t rank_bits_of_ids = 0x1ffff;  ///< ids stay below 2^53

}  // namespace

void write_chrome_trace(std::span<const RankTrace> ranks, std::ostream& out, std::span<const ClockOffset> clocks) {
  const Nanos origin = origin_of(ranks);
  std::uint64_t overwritten = 0;
  out << "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
  bool first = true;
  // Ids of async spans are global in a file; merged files stay apart by their first rank.
  std::uint64_t async_id = ranks.empty() ? 0 : std::uint64_t{ranks[0].rank.value() & rank_bits_of_ids} << 36U;
  const Arrows arrows(ranks, !clocks.empty());
  for (const auto& rank : ranks) {
    RankWriter(rank, origin, out, first, async_id, arrows).write();
    overwritten += rank.overwritten;
  }
  out << "\n],\"otherData\":{\"origin_ns\":\"" << origin.count() << "\",\"overwritten_events\":\"" << overwritten << '"';
  if (!clocks.empty()) out << ",\"clocks\":" << json_of(clocks);
  out << "}}\n";
}

Result<void> write_chrome_trace(std::span<const RankTrace> ranks, const std::filesystem::path& file, std::span<const ClockOffset> clocks) {
  std::error_code unknown;
  const bool pipe_or_device = std::filesystem::exists(file, unknown) && !std::filesystem::is_regular_file(file, unknown);
  std::filesystem::path temporary = file;
  if (!pipe_or_device) temporary += ".tmp";  // what is no file is written to, never replaced by one
  {
    std::ofstream out(temporary, std::ios::binary);
    write_chrome_trace(ranks, out, clocks);
    out.flush();
    if (!out) return Error{"cannot write the trace " + temporary.string() + ": see whether its folder exists and the disk has room"};
  }
  if (pipe_or_device) return {};
  std::error_code problem;
  std::filesystem::rename(temporary, file, problem);
  if (problem) return Error{"cannot rename " + temporary.string() + " to " + file.string() + ": " + problem.message()};
  return {};
}

}  // namespace troupe
