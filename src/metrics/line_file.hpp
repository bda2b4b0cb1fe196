#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "src/base/result.hpp"

namespace troupe {

/// A file of lines that only grows: metrics.jsonl, journal.jsonl. Each line is one write, so a reader never sees half of one that was
/// followed by another, and a killed process loses none. `sync` makes it safe against the host's death; callers do so at checkpoints
/// and at the end. One thread; blocks on the file.
class LineFile {
 public:
  /// Opens or creates. A last line without line feed (torn by a crash) is cut off. Then `keep` is asked for each line in turn, and the
  /// file is cut before the first that it refuses; an empty function keeps all.
  [[nodiscard]] static Result<LineFile> open(const std::filesystem::path& path, const std::function<bool(std::string_view line)>& keep = {});
  LineFile(LineFile&& other) noexcept;
  LineFile& operator=(LineFile&& other) noexcept;
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;
  ~LineFile();

  /// Appends a line (given without line feed). When the disk is full the line waits in memory (up to 16 MiB of them) for the next
  /// call, and nothing half-written stays in the file; the error says how many wait.
  [[nodiscard]] Result<void> append(std::string_view line);
  [[nodiscard]] Result<void> sync();

 private:
  LineFile(int descriptor, std::string path, std::uint64_t size) : descriptor_(descriptor), path_(std::move(path)), size_(size) {}
  [[nodiscard]] Result<void> flush();
  int descriptor_ = -1;
  std::string path_;
  std::uint64_t size_ = 0;  ///< bytes of whole lines in the file
  std::string waiting_;
};

}  // namespace troupe
