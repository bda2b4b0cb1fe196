#include "src/data/file_set.hpp"

#include <fnmatch.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>

namespace troupe {
namespace {

Result<std::vector<std::string>> expand(const std::string& pattern, const std::string& key) {
  if (pattern.find_first_of("*?[") == std::string::npos) return std::vector<std::string>{pattern};
  glob_t found{};
  const int code = glob(pattern.c_str(), GLOB_BRACE | GLOB_TILDE, nullptr, &found);
  std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + (code == 0 ? found.gl_pathc : 0));
  globfree(&found);
  if (paths.empty()) return Error{key + ": no file matches '" + pattern + "' (in " + std::filesystem::current_path().string() + ")"};
  return paths;
}

bool left_out(const std::string& path, const std::vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    if (!pattern.starts_with('!')) return false;
    const char* shape = pattern.c_str() + 1;
    return fnmatch(shape, path.c_str(), 0) == 0 || fnmatch(shape, std::filesystem::path(path).filename().c_str(), 0) == 0;
  });
}

Result<DataFile> examine(const std::string& path, const std::string& key) {
  struct stat facts {};
  if (stat(path.c_str(), &facts) != 0) return Error{key + ": cannot find '" + path + "': " + std::strerror(errno)};
  if (S_ISDIR(facts.st_mode)) return Error{key + ": '" + path + "' is a folder; name its files, for example '" + path + "/*'"};
  if (!S_ISREG(facts.st_mode)) return Error{key + ": '" + path + "' is not a regular file"};
  if (access(path.c_str(), R_OK) != 0) return Error{key + ": cannot read '" + path + "': " + std::strerror(errno)};
  return DataFile{path, static_cast<std::uint64_t>(facts.st_size), facts.st_mtim.tv_sec * 1'000'000'000 + facts.st_mtim.tv_nsec, path};
}

}  // namespace

Result<std::vector<DataFile>> find_data_files(const std::vector<std::string>& patterns, const std::string& section) {
  const std::string key = section + ".dataset_path";
  std::set<std::string> paths;
  for (const auto& pattern : patterns) {
    if (pattern.starts_with('!')) continue;
    auto expanded = expand(pattern, key);
    if (!expanded) return expanded.error();
    const bool globbed = expanded->size() != 1 || expanded->front() != pattern;
    for (auto& path : *expanded) {
      std::error_code ignored;
      if (globbed && std::filesystem::is_directory(path, ignored)) continue;
      if (!left_out(path, patterns)) paths.insert(std::move(path));
    }
  }
  if (paths.empty()) return Error{key + ": names no file; give a file, a glob or a list of them"};
  std::vector<DataFile> files;
  std::set<std::string> seen;
  for (const auto& path : paths) {
    auto file = examine(path, key);
    if (!file) return file.error();
    std::error_code ignored;
    const auto real = std::filesystem::canonical(path, ignored);
    if (seen.insert(real.string()).second) files.push_back(std::move(*file));
  }
  return files;
}

}  // namespace troupe
