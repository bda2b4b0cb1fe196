#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "src/base/ids.hpp"
#include "src/base/result.hpp"
#include "src/config/job_config.hpp"
#include "tools/launcher/host_agent.hpp"

namespace troupe {

/// The lines that were added to a text file since the last look, whole ones alone.
class LineTail {
 public:
  explicit LineTail(std::filesystem::path file) : file_(std::move(file)) {}
  [[nodiscard]] std::vector<std::string> more();

 private:
  std::filesystem::path file_;
  std::uint64_t offset_ = 0;
};

/// What a journal told so far.
struct JournalFacts {
  std::map<Rank, std::int64_t> pids;  ///< newest process of each rank
  std::set<std::int64_t> all_pids;
  std::uint64_t epochs = 0, recoveries_begun = 0, respawns = 0;
  std::set<std::uint64_t> rules_fired;   ///< from 1
  std::vector<double> recoveries;        ///< seconds from fault to first new step
  std::vector<std::string> not_at_rest;  ///< faults of ranks whose slots or lanes did not come home
};

/// One `troupe train` as a child of this process, in a folder of its own, and what it leaves behind. Single-threaded; needs SIGCHLD to be
/// the caller's, and this process to be a subreaper (become_subreaper).
class ChaosJob {
 public:
  /// `folder` is made; holds job.toml, run/ (the job's folder, whatever the configuration says), output.log and the job's TMPDIR.
  ChaosJob(JobConfig config, std::uint32_t ranks, std::filesystem::path folder);
  [[nodiscard]] Result<void> start(bool overwrite = false);
  [[nodiscard]] bool running() const noexcept { return agent_.running() > 0; }
  /// Reads what the job has told since the last look, and reaps it if it has ended.
  void look();
  [[nodiscard]] Step newest_step() const noexcept { return newest_; }
  [[nodiscard]] const JournalFacts& facts() const noexcept { return facts_; }
  [[nodiscard]] const WorkerEnd& end() const { return ends_.back(); }  ///< of the launcher that ended last
  /// False: the rank has no live process now.
  [[nodiscard]] bool signal_rank(Rank rank, int signal) const;
  void kill_launcher() { (void)agent_.kill(Rank{0}); }
  /// Is a checkpoint being written?
  [[nodiscard]] bool saving() const;
  [[nodiscard]] bool has_checkpoint() const;
  /// Told steps in which a rerun must agree, one line a step.
  [[nodiscard]] std::vector<std::string> told() const;
  [[nodiscard]] std::filesystem::path run() const { return folder_ / "run"; }
  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }
  [[nodiscard]] std::string output_tail() const { return tail_of(folder_ / "output.log", 12); }
  /// What is left though the launcher has ended: live processes (then killed), segments of System V shared memory, temporary files, halves of checkpoints.
  [[nodiscard]] std::vector<std::string> leftovers(std::chrono::milliseconds patience);

 private:
  void note(const std::string& line);
  std::uint32_t ranks_;
  std::filesystem::path folder_;
  HostAgent agent_;
  std::vector<WorkerEnd> ends_;
  LineTail metrics_, journal_;
  Step newest_;
  JournalFacts facts_;
};

/// Orphans of this process's children become its children: none can hide. Throws std::runtime_error.
void become_subreaper();
/// Segments of POSIX shared memory of this user, by name.
[[nodiscard]] std::set<std::string> shared_memory_files();
/// Is it open in any process that this user may look at?
[[nodiscard]] bool is_mapped(const std::string& shared_memory_file);

}  // namespace troupe
