#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "tools/launcher/socket.hpp"

namespace troupe {

/// RUN: the folder of one run, locked by this process while it lives (flock on RUN/lock: the kernel lets go with the process,
/// however it ends). Holds config.toml, metrics.jsonl, journal.jsonl, control.json, logs/, trace/, index/, checkpoint/.
/// A folder counts as a run's only by the mark of one: RUN/lock with a PID, or a journal. Without it nothing is ever deleted.
class RunFolder {
 public:
  enum class Content {
    fresh,      ///< empty, or marked by a run that finished no step
    resumable,  ///< has a sealed checkpoint that may be resumed from
    foreign     ///< anything else: needs overwrite
  };
  struct Request {
    std::vector<std::filesystem::path> outputs = {};  ///< further folders inside `path` that runs of this configuration write
    std::filesystem::path path;
    std::filesystem::path checkpoints = "checkpoint";  ///< checkpoint.folder, inside `path`
    std::filesystem::path keep;                        ///< the configuration's file, never deleted; empty: none
    bool overwrite = false;                            ///< begin anew: delete what an earlier run left
    bool resumable = false;                            ///< a sealed checkpoint is there and may be used
    std::string why_not;                               ///< said when the folder is refused
  };
  /// Creates, locks and, where asked, clears it. An error when another live run holds it (with its PID), when it holds something else
  /// and `overwrite` is not given, when `overwrite` would delete what no run has marked, or when it cannot be written.
  [[nodiscard]] static Result<RunFolder> open(const Request& request);

  RunFolder(RunFolder&&) noexcept = default;
  RunFolder& operator=(RunFolder&&) = delete;
  ~RunFolder();  ///< the run is over: control.json goes

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] Content content() const noexcept { return content_; }
  [[nodiscard]] std::filesystem::path log_of(std::uint32_t rank) const;
  /// Whether the folder's path still leads to what `open` locked: not after it was removed, renamed or replaced under the run.
  [[nodiscard]] bool in_place() const;
  /// control.json, mode 0600: where the Coordinator listens, the token that proves membership, our PID.
  [[nodiscard]] Result<void> write_control(const std::string& address, const std::string& token);
  /// Writes a whole file by rename.
  [[nodiscard]] Result<void> write(const std::string& name, const std::string& text, unsigned mode = 0644) const;

 private:
  RunFolder(std::filesystem::path path, Descriptor lock) : path_(std::move(path)), lock_(std::move(lock)) {}
  std::filesystem::path path_;
  Descriptor lock_;
  Content content_ = Content::fresh;
  bool has_control_ = false;
};

/// The token and address of control.json, as a worker without a launcher's environment reads them.
struct ControlFile {
  std::string address, token;
  std::int64_t pid = 0;
};
[[nodiscard]] Result<ControlFile> read_control(const std::filesystem::path& run_folder);

}  // namespace troupe
