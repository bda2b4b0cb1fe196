#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "src/trace/chrome_trace.hpp"

namespace troupe {
namespace {

// write_chrome_trace puts every event on a line of its own between these two, so files are joined without being parsed.
constexpr std::string_view opening = R"({"displayTimeUnit":"ns","traceEvents":[)", closing = R"(],"otherData":{"origin_ns":")";
constexpr std::string_view overwritten_key = R"(","overwritten_events":")";

struct TraceFile {
  std::string text;
  std::string_view events;  ///< lines, each but the last with a comma at its end
  std::int64_t origin = 0;
  std::uint64_t overwritten = 0;
};

template <class Number>
bool take_number(std::string_view& text, Number& number) {
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc{}) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

Result<std::unique_ptr<TraceFile>> read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::error_code unknown;
  if (!in || std::filesystem::is_directory(path, unknown)) return Error{"cannot read the trace " + path.string()};
  auto file = std::make_unique<TraceFile>();
  file->text.assign(std::istreambuf_iterator<char>(in), {});
  const std::string_view text = file->text;
  const std::size_t end = text.rfind(closing);
  if (text.starts_with(opening) && end != std::string_view::npos && text[end - 1] == '\n') {
    file->events = text.substr(opening.size(), end - 1 - opening.size());
    std::string_view rest = text.substr(end + closing.size());
    if (take_number(rest, file->origin) && rest.starts_with(overwritten_key)) {
      rest.remove_prefix(overwritten_key.size());
      if (take_number(rest, file->overwritten)) return file;
    }
  }
  return Error{path.string() + " is not a trace that this program wrote: traceEvents, otherData.origin_ns or otherData.overwritten_events is missing"};
}

/// Copies `line` with the time behind `key` moved on. A quote inside of a name is written \", so the key is found as a key only.
/// Times are whole nanoseconds, written as microseconds with three decimals.
void shift_time(std::string& line, std::string_view key, std::int64_t nanos) {
  const std::size_t found = line.find(key);
  if (found == std::string::npos) return;
  const std::size_t start = found + key.size(), end = line.find_first_not_of("0123456789.", start);
  std::int64_t whole = 0, part = 0;
  const char* const point = std::from_chars(line.data() + start, line.data() + line.size(), whole).ptr;
  if (*point == '.') std::from_chars(point + 1, line.data() + line.size(), part);
  const std::int64_t time = whole * 1000 + part + nanos;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%lld.%03lld", static_cast<long long>(time / 1000), static_cast<long long>(time % 1000));
  line.replace(start, end - start, text.data());
}

void write_events(std::ostream& out, std::string_view events, std::int64_t shift) {
  if (shift == 0) {
    out << events;
    return;
  }
  std::string line;
  while (!events.empty()) {
    const std::size_t end = events.find('\n', 1);  // a line starts with its line break
    line = events.substr(0, end);
    events.remove_prefix(std::min(end, events.size()));
    if (!line.starts_with("\n{\"ph\":\"M\"")) {
      shift_time(line, "\"ts\":", shift);
      shift_time(line, "\"issued\":", shift);
    }
    out << line;
  }
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
  sorted.reserve(files.size());
  for (auto& [rank, file] : files) sorted.push_back(std::move(file));
  return sorted;
}

Result<void> merge_traces(std::span<const std::filesystem::path> files, const std::filesystem::path& out_path) {
  std::vector<std::unique_ptr<TraceFile>> traces;
  for (const auto& path : files) {
    auto trace = read(path);
    if (!trace) return trace.error();
    traces.push_back(std::move(*trace));
  }
  if (traces.empty()) return Error{"no trace files to merge into " + out_path.string()};
  const auto earliest = std::min_element(traces.begin(), traces.end(), [](const auto& a, const auto& b) { return a->origin < b->origin; })->get()->origin;
  std::uint64_t overwritten = 0;
  std::error_code unknown;
  const bool pipe_or_device = std::filesystem::exists(out_path, unknown) && !std::filesystem::is_regular_file(out_path, unknown);
  std::filesystem::path temporary = out_path;
  if (!pipe_or_device) temporary += ".tmp";  // what is no file is written to, never replaced by one
  {
    std::ofstream out(temporary, std::ios::binary);
    out << opening;
    bool first = true;
    for (const auto& trace : traces) {
      overwritten += trace->overwritten;
      if (trace->events.empty()) continue;
      if (!std::exchange(first, false)) out << ',';
      write_events(out, trace->events, trace->origin - earliest);
    }
    out << "\n" << closing << earliest << overwritten_key << overwritten << "\"}}\n";
    out.flush();
    if (!out) return Error{"cannot write the trace " + temporary.string() + ": see whether its folder exists and the disk has room"};
  }
  if (pipe_or_device) return {};
  std::error_code problem;
  std::filesystem::rename(temporary, out_path, problem);
  if (problem) return Error{"cannot rename " + temporary.string() + " to " + out_path.string() + ": " + problem.message()};
  return {};
}

}  // namespace troupe
