#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "src/trace/chrome_trace.hpp"

namespace troupe {
namespace {

using nlohmann::json;

struct TraceFile {
  json content;
  std::int64_t origin = 0;
  std::uint64_t overwritten = 0;
};

Result<TraceFile> read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return Error{"cannot read the trace " + path.string()};
  TraceFile file;
  file.content = json::parse(in, nullptr, false);
  try {
    if (!file.content.is_discarded() && file.content.at("traceEvents").is_array()) {
      const auto& other = file.content.at("otherData");
      file.origin = std::stoll(other.at("origin_ns").get<std::string>());
      file.overwritten = std::stoull(other.at("overwritten_events").get<std::string>());
      return file;
    }
  } catch (const std::exception&) {  // falls to the error below: whatever is missing, the file is not one of ours
  }
  return Error{path.string() + " is not a trace that this program wrote: traceEvents, otherData.origin_ns or otherData.overwritten_events is missing"};
}

/// Whole nanoseconds as microseconds; a sum of two such doubles is rounded back to three decimals.
double shifted(double microseconds, std::int64_t nanos) { return static_cast<double>(std::llround(microseconds * 1000.0) + nanos) / 1000.0; }

void write_event(std::ostream& out, json event, std::int64_t shift, bool& first) {
  if (shift != 0 && event.value("ph", "") != "M") {
    event["ts"] = shifted(event.value("ts", 0.0), shift);
    if (event.contains("args") && event["args"].contains("issued")) event["args"]["issued"] = shifted(event["args"]["issued"].get<double>(), shift);
  }
  out << (first ? "\n" : ",\n") << event.dump();
  first = false;
}

}  // namespace

std::vector<std::filesystem::path> rank_traces(const std::filesystem::path& folder) {
  constexpr std::string_view start = "rank-", end = ".json";
  std::map<std::uint32_t, std::filesystem::path> files;
  std::error_code problem;
  for (const auto& entry : std::filesystem::directory_iterator(folder, problem)) {
    const std::string name = entry.path().filename().string();
    if (name.size() <= start.size() + end.size() || !name.starts_with(start) || !name.ends_with(end)) continue;
    const char *const first = name.data() + start.size(), *const last = name.data() + name.size() - end.size();
    std::uint32_t rank = 0;
    if (const auto [stop, wrong] = std::from_chars(first, last, rank); wrong == std::errc{} && stop == last) files[rank] = entry.path();
  }
  std::vector<std::filesystem::path> sorted;
  for (auto& [rank, file] : files) sorted.push_back(std::move(file));
  return sorted;
}

Result<void> merge_traces(std::span<const std::filesystem::path> files, const std::filesystem::path& out_path) {
  std::vector<TraceFile> traces;
  for (const auto& path : files) {
    auto trace = read(path);
    if (!trace) return trace.error();
    traces.push_back(std::move(*trace));
  }
  if (traces.empty()) return Error{"no trace files to merge into " + out_path.string()};
  const auto earliest = std::min_element(traces.begin(), traces.end(), [](const auto& a, const auto& b) { return a.origin < b.origin; })->origin;
  std::uint64_t overwritten = 0;
  std::filesystem::path temporary = out_path;
  temporary += ".tmp";
  {
    std::ofstream out(temporary, std::ios::binary);
    out << "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
    bool first = true;
    for (const auto& trace : traces) {
      overwritten += trace.overwritten;
      for (const auto& event : trace.content.at("traceEvents")) write_event(out, event, trace.origin - earliest, first);
    }
    out << "\n],\"otherData\":{\"origin_ns\":\"" << earliest << "\",\"overwritten_events\":\"" << overwritten << "\"}}\n";
    out.flush();
    if (!out) return Error{"cannot write the trace " + temporary.string() + ": see whether its folder exists and the disk has room"};
  }
  std::error_code problem;
  std::filesystem::rename(temporary, out_path, problem);
  if (problem) return Error{"cannot rename " + temporary.string() + " to " + out_path.string() + ": " + problem.message()};
  return {};
}

}  // namespace troupe
