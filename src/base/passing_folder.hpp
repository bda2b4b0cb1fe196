#pragma once
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>

#include "src/base/result.hpp"

namespace troupe {

/// A fresh folder below the system's folder for temporary files, which goes with this, unless it is to be kept. Any thread; blocks on the disk.
class PassingFolder {
 public:
  /// `purpose` becomes part of its name. Error: where it could not be made, and why.
  [[nodiscard]] static Result<PassingFolder> make(const std::string& purpose) {
    std::error_code failed;
    const std::filesystem::path below = std::filesystem::temp_directory_path(failed);
    if (failed) return Error{"cannot make a folder for passing files: " + failed.message() + " (TMPDIR names where)"};
    std::string name = (below / ("troupe-" + purpose + "-XXXXXX")).string();
    if (::mkdtemp(name.data()) == nullptr)
      return Error{"cannot make a folder for passing files, " + name + ": " + std::strerror(errno) + " (TMPDIR names where)"};
    return PassingFolder(std::move(name));
  }
  PassingFolder(PassingFolder&& other) noexcept : path_(std::exchange(other.path_, {})), kept_(other.kept_) {}
  PassingFolder& operator=(PassingFolder&&) = delete;
  ~PassingFolder() {
    std::error_code ignored;
    if (!path_.empty() && !kept_) std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  void keep() noexcept { kept_ = true; }

 private:
  explicit PassingFolder(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
  bool kept_ = false;
};

}  // namespace troupe
