#include <charconv>
#include <map>
#include <string>
#include <string_view>

#include "src/trace/chrome_trace.hpp"
#include "src/trace/run_timeline.hpp"

namespace troupe {

std::vector<std::filesystem::path> rank_traces(const std::filesystem::path& folder) {
  constexpr std::string_view start = "rank-", end = ".json";
  std::map<std::uint32_t, std::filesystem::path> files;
  std::error_code problem;
  for (const auto& entry : std::filesystem::directory_iterator(folder, problem)) {
    const std::string name = entry.path().filename().string();
    if (name == launcher_trace) files[launcher_clock.value()] = entry.path();
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

Result<RunTimeline> merge_traces(std::span<const std::filesystem::path> files, const std::filesystem::path& out, std::optional<std::pair<Step, Step>> steps) {
  auto timeline = read_run_timeline(files, steps);
  if (!timeline) return timeline.error();
  if (auto written = write_chrome_trace(timeline->ranks, out, timeline->clocks); !written) return written.error();
  return timeline;
}

}  // namespace troupe
