#include "tests/unit/trace/trace_rules.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

namespace troupe::testing {
namespace {

using nlohmann::json;
using Row = std::pair<std::int64_t, std::int64_t>;
struct Interval {
  std::int64_t start, end;
};

/// Nanoseconds of a time in microseconds.
std::int64_t nanos(const json& time) { return std::llround(time.get<double>() * 1000); }

void check_fields(const json& event, std::vector<std::string>& broken) {
  const auto number = [&](const char* key) {
    if (!event.contains(key) || !event[key].is_number()) broken.push_back(std::string(key) + " is missing or no number: " + event.dump());
  };
  if (!event.contains("name") || !event["name"].is_string() || event["name"].get<std::string>().empty()) broken.push_back("no name: " + event.dump());
  for (const char* key : {"pid", "tid", "ts"}) number(key);
  const std::string phase = event.value("ph", "");
  if (phase == "X") number("dur");
  if (phase == "s" || phase == "f" || phase == "b" || phase == "e") {
    number("id");
    if (event.value("id", std::uint64_t{0}) >= (std::uint64_t{1} << 53)) broken.push_back("id over 2^53: " + event.dump());
    if (!event.contains("cat")) broken.push_back("no cat: " + event.dump());
  }
  if (event.value("ts", 0.0) < 0 || event.value("ts", 0.0) >= 1e12) broken.push_back("time out of range: " + event.dump());
  if (phase == "X" && nanos(event["dur"]) <= 0) broken.push_back("no length: " + event.dump());
}

void check_nesting(std::map<Row, std::vector<Interval>>& rows, std::vector<std::string>& broken) {
  for (auto& [row, spans] : rows) {
    std::stable_sort(spans.begin(), spans.end(), [](const auto& a, const auto& b) { return a.start != b.start ? a.start < b.start : a.end > b.end; });
    std::vector<std::int64_t> open;
    for (const auto& span : spans) {
      while (!open.empty() && open.back() <= span.start) open.pop_back();
      if (!open.empty() && span.end > open.back())
        broken.push_back("spans of row " + std::to_string(row.first) + "/" + std::to_string(row.second) + " overlap at " + std::to_string(span.start));
      open.push_back(span.end);
    }
  }
}

}  // namespace

std::vector<std::string> broken_rules(const json& trace) {
  std::vector<std::string> broken;
  std::map<Row, std::vector<Interval>> spans;
  std::map<std::pair<std::uint64_t, std::string>, int> async;
  std::set<Row> named_rows, used_rows;
  std::set<std::int64_t> named_processes;
  for (const auto& event : trace.at("traceEvents")) {
    check_fields(event, broken);
    if (!broken.empty()) return broken;
    const Row row{event["pid"], event["tid"]};
    const std::string phase = event["ph"], name = event["name"];
    if (phase == "M" && name == "thread_name")
      named_rows.insert(row);
    else if (phase == "M" && name == "process_name" && !named_processes.insert(row.first).second)
      broken.push_back("process named twice");
    if (phase != "M") used_rows.insert(row);
    if (phase == "X") spans[row].push_back({nanos(event["ts"]), nanos(event["ts"]) + nanos(event["dur"])});
    if (phase == "b") ++async[{event["id"], name}];
    if (phase == "e") --async[{event["id"], name}];
  }
  check_nesting(spans, broken);
  for (const auto& [key, count] : async) {
    if (count != 0) broken.push_back("async span without begin or end: " + key.second);
  }
  for (const Row& row : used_rows) {
    if (!named_rows.contains(row)) broken.push_back("row without a name: " + std::to_string(row.second));
    if (!named_processes.contains(row.first)) broken.push_back("process without a name: " + std::to_string(row.first));
  }
  return broken;
}

std::vector<json> events_of(const json& trace, const std::string& phase) {
  std::vector<json> found;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") == phase) found.push_back(event);
  }
  return found;
}

}  // namespace troupe::testing
