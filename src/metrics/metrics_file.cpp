#include "src/metrics/metrics_file.hpp"

#include <charconv>
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

}  // namespace

Result<MetricsFile> MetricsFile::open(const std::filesystem::path& path, Step restored, const DeviceRates& rates) {
  std::uint64_t number = 0, strange = 0;
  // Looked at first and cut second, so that a file that is not ours stays as it is.
  auto looked = LineFile::open(path, [&](std::string_view line) {
    ++number;
    if (strange == 0 && !step_of_line(line)) strange = number;
    return true;
  });
  if (!looked) return looked.error();
  if (strange != 0) return Error{path.string() + ":" + std::to_string(strange) + ": not a line of metrics; move the file away"};
  auto file = LineFile::open(path, [&](std::string_view line) { return *step_of_line(line) <= restored.value(); });
  if (!file) return file.error();
  return MetricsFile(std::move(*file), rates);
}

}  // namespace troupe
