#include "tools/launcher/data_files.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "src/data/file_set.hpp"

namespace troupe {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct Facts {
  std::uint64_t bytes = 0;
  std::int64_t modified_nanos = 0;
  bool operator==(const Facts&) const = default;
};
using Files = std::map<std::string, Facts>;

Files read(const fs::path& file) {
  Files files;
  std::ifstream stream(file);
  const json kept = stream ? json::parse(stream, nullptr, false) : json();
  if (!kept.is_object()) return files;
  for (const auto& [path, facts] : kept.items())
    if (facts.is_array() && facts.size() == 2 && facts[0].is_number_unsigned() && facts[1].is_number_integer())
      files[path] = {facts[0].get<std::uint64_t>(), facts[1].get<std::int64_t>()};
  return files;
}

/// A run does not fail for want of this file.
void write(const fs::path& file, const Files& files) {
  json kept = json::object();
  for (const auto& [path, facts] : files) kept[path] = {facts.bytes, facts.modified_nanos};
  std::error_code ignored;
  fs::create_directories(file.parent_path(), ignored);
  fs::path beside = file;
  beside += ".new";
  std::ofstream stream(beside);
  stream << kept.dump(1, ' ', false, json::error_handler_t::replace) << "\n";
  stream.close();
  if (stream) fs::rename(beside, file, ignored);
}

/// The files behind the paths of tokens: those of folders of shards, or Megatron's two.
std::vector<std::string> patterns_of(const DataSettings& data) {
  if (data.dataset != "tokens" && data.dataset != "megatron") return data.dataset_path;
  std::vector<std::string> patterns;
  for (const std::string& path : data.dataset_path) {
    if (path.starts_with('!')) continue;
    if (data.dataset == "tokens") {
      patterns.push_back(path + "/shard-*.tokens");  // the manifest is written anew by each `troupe tokenize`
      continue;
    }
    const bool named = path.ends_with(".idx") || path.ends_with(".bin");
    const std::string prefix = named ? path.substr(0, path.size() - 4) : path;
    patterns.insert(patterns.end(), {prefix + ".idx", prefix + ".bin"});
  }
  return patterns;
}

}  // namespace

std::vector<std::string> compare_data_files(const JobConfig& config, const fs::path& run_folder, bool goes_on) {
  const auto found = find_data_files(patterns_of(config.data));
  if (!found) return {};  // the ranks, perhaps on other hosts, say it where they cannot read them either
  Files now;
  for (const DataFile& file : *found) now[fs::absolute(file.path).string()] = {file.bytes, file.modified_nanos};
  const fs::path kept = run_folder / "index" / "files.json";
  const Files before = read(kept);
  write(kept, now);
  if (!goes_on || before.empty() || before == now) return {};
  std::string first;
  std::size_t changed = 0;
  const auto tell = [&](const std::string& path, const std::string& what) {
    if (changed++ == 0) first = path + " " + what;
  };
  for (const auto& [path, facts] : before) {
    const auto other = now.find(path);
    if (other == now.end())
      tell(path, "is not among them any more");
    else if (other->second.bytes != facts.bytes)
      tell(path, fmt::format("had {} bytes and has {}", facts.bytes, other->second.bytes));
    else if (other->second != facts)
      tell(path, "was modified");
  }
  for (const auto& [path, facts] : now)
    if (!before.contains(path)) tell(path, "is new");
  return {fmt::format(
      "the files of the data are not those of the run's last start: {}{}; where the checkpoint's position in the data leads is decided by those of now", first,
      changed > 1 ? fmt::format(", and {} more differ", changed - 1) : "")};
}

}  // namespace troupe
