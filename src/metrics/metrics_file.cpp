#include "src/metrics/metrics_file.hpp"

#include <charconv>
#include <fstream>
#include <optional>
#include <string>

namespace troupe {
namespace {

constexpr std::string_view line_begins = R"({"step":)";

std::optional<std::uint64_t> step_of_line(std::string_view line) {
  if (!line.starts_with(line_begins)) return std::nullopt;
  line.remove_prefix(line_begins.size());
  std::uint64_t step = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), step);
  return error == std::errc{} && end != line.data() + line.size() && *end == ',' ? std::optional(step) : std::nullopt;
}

/// The number of the first line that is none of ours, 0 if there is none. Only reads: a file of another kind stays as it is.
std::uint64_t foreign_line(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::uint64_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    const bool torn = file.eof();  // the last one, without line feed: any beginning of ours will do
    const bool ours = torn ? line.starts_with(line_begins) || line_begins.starts_with(line) : step_of_line(line).has_value();
    if (!ours) return number;
  }
  return 0;
}

}  // namespace

Result<MetricsFile> MetricsFile::open(const std::filesystem::path& path, Step restored, const DeviceRates& rates) {
  if (const std::uint64_t strange = foreign_line(path); strange != 0)
    return Error{path.string() + ":" + std::to_string(strange) + ": not a line of metrics; move the file away"};
  auto file = LineFile::open(path, [&](std::string_view line) { return *step_of_line(line) <= restored.value(); });
  if (!file) return file.error();
  return MetricsFile(std::move(*file), rates);
}

}  // namespace troupe
