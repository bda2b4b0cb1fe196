#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_map>

#include "src/trace/run_timeline.hpp"

namespace troupe {
namespace {

using nlohmann::json;

/// Builds the RankTrace of one process of a file.
class RankReader {
 public:
  explicit RankReader(Rank rank) { trace_.rank = rank; }

  std::uint32_t intern(const std::string& text) {
    const auto [found, fresh] = ids_.try_emplace(text, static_cast<std::uint32_t>(trace_.names.size()));
    if (fresh) trace_.names.push_back(text);
    return found->second;
  }
  /// "compute" of "compute 2": spans of one track that overlap are drawn in further rows.
  void name_row(std::int64_t row, std::string text) {
    const std::size_t number = text.find_last_not_of("0123456789");
    if (number != std::string::npos && number + 1 < text.size() && text[number] == ' ') text.resize(number);
    rows_[row] = intern(text);
  }
  std::uint32_t track(std::int64_t row) {
    const auto found = rows_.find(row);
    return found != rows_.end() ? found->second : intern("row " + std::to_string(row));
  }
  void add(const TraceEvent& event) { trace_.events.push_back(event); }
  [[nodiscard]] RankTrace take() { return std::move(trace_); }
  Where letter{};  ///< of the last "send …" or "receive …"; its arrow is the next line

 private:
  RankTrace trace_;
  std::unordered_map<std::string, std::uint32_t> ids_;
  std::map<std::int64_t, std::uint32_t> rows_;
};

Nanos nanos(const json& microseconds) { return Nanos{std::llround(microseconds.get<double>() * 1000)}; }

constexpr Nanos unknown = Nanos::min();  ///< a span without an issue

Where where_of(const json& args) {
  return {EpochId{args.at("epoch").get<std::uint64_t>()}, Step{args.at("step").get<std::uint64_t>()}, Micro{args.at("micro").get<std::uint32_t>()},
          Unit{args.at("unit").get<std::uint32_t>()}};
}

class FileReader {
 public:
  void event(const json& event) {
    const Rank pid{event.at("pid").get<std::uint32_t>()};
    RankReader& rank = ranks_.try_emplace(pid, pid).first->second;
    const char phase = event.at("ph").get_ref<const std::string&>().at(0);
    const std::string& name = event.at("name").get_ref<const std::string&>();
    const std::int64_t row = event.at("tid");
    TraceEvent read;
    read.started = nanos(event.at("ts"));
    switch (phase) {
      case 'M':
        if (name == "thread_name") rank.name_row(row, event.at("args").at("name"));
        return;
      case 'X': {
        const json& args = event.at("args");
        read.where = where_of(args);
        if (!args.contains("outcome")) {
          rank.letter = read.where;
          return;
        }
        read.ended = read.started + nanos(event.at("dur"));
        read.issued = args.contains("issued") ? read.started - nanos(args.at("queued")) : unknown;
        read.outcome = rank.intern(args.at("outcome"));
        read.track = rank.track(row);
        break;
      }
      case 's':
      case 'f':
        read.kind = phase == 's' ? TraceEvent::Kind::letter_sent : TraceEvent::Kind::letter_received;
        read.where = rank.letter;
        read.value = event.at("id");
        read.track = rank.track(row);
        break;
      case 'C':
        read.kind = TraceEvent::Kind::slots;
        read.value = event.at("args").at("in use");
        read.name = read.track = rank.intern(name.substr(std::string_view("slots ").size()));
        rank.add(read);
        return;
      case 'i': read.kind = TraceEvent::Kind::mark; break;
      default: return;
    }
    read.name = rank.intern(name);
    rank.add(read);
  }

  std::vector<RankTrace> take(Nanos origin, std::uint64_t overwritten) {
    std::vector<RankTrace> traces;
    for (auto& [id, rank] : ranks_) {
      RankTrace trace = rank.take();
      for (TraceEvent& event : trace.events) {
        if (event.kind == TraceEvent::Kind::span) event.issued = event.issued == unknown ? Nanos{0} : event.issued + origin;
        event.started += origin;
        if (event.kind == TraceEvent::Kind::span) event.ended += origin;
      }
      trace.overwritten = std::exchange(overwritten, 0);
      traces.push_back(std::move(trace));
    }
    return traces;
  }

 private:
  std::map<Rank, RankReader> ranks_;
};

}  // namespace

Result<std::vector<RankTrace>> read_chrome_trace(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::error_code unknown;
  if (!in || std::filesystem::is_directory(file, unknown)) return Error{"cannot read the trace " + file.string()};
  const auto foreign = [&](const std::string& why) { return Error{file.string() + " is not a trace that this program wrote: " + why}; };
  std::string line;
  if (!std::getline(in, line) || !line.starts_with(R"({"displayTimeUnit":"ns","traceEvents":[)")) return foreign("traceEvents is missing");
  FileReader reader;
  try {
    // Every event has a line of its own: a file of millions is never in memory as a whole.
    while (std::getline(in, line)) {
      if (line.starts_with(R"({"ph":"b")") || line.starts_with(R"({"ph":"e")")) continue;  // a span's "queued" says the same
      if (line.starts_with("],")) {
        const json rest = json::parse("{" + line.substr(2));
        const json& other = rest.at("otherData");
        return reader.take(Nanos{std::stoll(other.at("origin_ns").get<std::string>())}, std::stoull(other.at("overwritten_events").get<std::string>()));
      }
      if (line.empty()) continue;
      if (line.back() == ',') line.pop_back();
      reader.event(json::parse(line));
    }
  } catch (const std::exception& problem) {
    return foreign(problem.what());
  }
  return foreign("otherData.origin_ns or otherData.overwritten_events is missing, it ends early");
}

}  // namespace troupe
