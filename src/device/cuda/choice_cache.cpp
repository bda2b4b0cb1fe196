#include "src/device/cuda/choice_cache.hpp"

#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>

namespace troupe::cuda {
namespace {

std::optional<std::string> set_variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? std::nullopt : std::optional<std::string>(value);
}

std::filesystem::path cache_folder() {
  if (const auto named = set_variable("TROUPE_CACHE")) return *named == "none" ? std::filesystem::path{} : std::filesystem::path(*named);
  if (const auto caches = set_variable("XDG_CACHE_HOME")) return std::filesystem::path(*caches) / "troupe";
  if (const auto home = set_variable("HOME")) return std::filesystem::path(*home) / ".cache" / "troupe";
  return {};
}

/// A line is a shape's numbers, two spaces, and the algorithm's words.
std::string shape_of(const std::string& line) { return line.substr(0, line.find("  ")); }

}  // namespace

std::string merge_choices(const std::string& first, const std::string& second) {
  std::ostringstream merged;
  std::set<std::string> known;
  for (const std::string& text : {first, second}) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
      if (!line.empty() && known.insert(shape_of(line)).second) merged << line << '\n';
  }
  return merged.str();
}

ChoiceCache::ChoiceCache(const std::string& heading) {
  const std::filesystem::path folder = cache_folder();
  if (folder.empty()) return;
  std::string name;
  for (const char c : heading) name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  file_ = folder / ("products-" + name + ".txt");
}

std::string ChoiceCache::read() const {
  if (file_.empty()) return {};
  std::ifstream stream(file_);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void ChoiceCache::add(const std::string& choices) const {
  if (file_.empty()) return;
  const std::string before = read(), merged = merge_choices(before, choices);
  if (merged == before) return;
  std::error_code problem;
  std::filesystem::create_directories(file_.parent_path(), problem);
  std::filesystem::path written = file_;
  written += "." + std::to_string(::getpid());
  if (std::ofstream stream(written); !(stream << merged).flush()) return;
  std::filesystem::rename(written, file_, problem);
  if (problem) std::filesystem::remove(written, problem);
}

}  // namespace troupe::cuda
