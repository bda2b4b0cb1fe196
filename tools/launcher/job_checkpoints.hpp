#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/seal_book.hpp"
#include "src/base/log.hpp"
#include "src/checkpoint/checkpoint_store.hpp"
#include "src/checkpoint/restore_point.hpp"
#include "src/config/job_config.hpp"

namespace troupe {

/// The checkpoints of one run, as whoever hosts the Coordinator sees them: which one to resume from, and the sealing of new ones.
class JobCheckpoints {
 public:
  JobCheckpoints(const JobConfig& config, const std::filesystem::path& run_folder);
  /// Cleans up what crashed saves left and looks for the one to resume from, reading and checking all of it. Blocks.
  /// `warnings`: damaged ones that were passed over, and each value of the configuration that differs from the checkpoint's; the
  /// configuration wins. An error when checkpoint.load_step names none, or all are damaged.
  [[nodiscard]] Result<void> look(std::vector<std::string>& warnings);
  [[nodiscard]] const std::optional<RestorePoint>& found() const noexcept { return found_; }
  [[nodiscard]] Step restore_step() const noexcept { return found_ ? found_->start.step : Step{0}; }
  [[nodiscard]] std::uint64_t tokens() const noexcept { return found_ ? found_->start.tokens : 0; }
  [[nodiscard]] Step schedule_before() const noexcept { return found_ ? found_->schedule_before : Step{0}; }
  /// Manifest, rename, purge. Blocks; on a storage lane. Throws std::runtime_error with what the storage said; nothing is sealed then.
  /// Before the first seal, checkpoints newer than the one resumed from are set aside, so that the newest is always one of this run.
  /// `config`: of the epoch, with `ranks` ranks; `data_row`: rows of data used when the step is over.
  void seal(const CheckpointParts& parts, const JobConfig& config, std::uint32_t ranks, std::uint64_t data_row, Log& log);
  /// Removes what ranks wrote of a checkpoint that lacks a part. Blocks; on a storage lane.
  void give_up(Step step, EpochId epoch) { (void)store_.give_up(step, epoch); }  // what cannot be removed goes with the next seal or start
  /// Renames the sealed ones after the first step and up to the second, which training was rolled back over. Blocks; on a storage lane; throws.
  void set_aside(Step after, Step until, Log& log);

 private:
  /// The console shows how far it is, where that takes longer than a second.
  [[nodiscard]] Result<std::optional<RestorePoint>> choose_watched(std::vector<std::string>& warnings);
  void clear_branch(Log& log);
  /// A checkpoint that is sealed stays so, and the run goes on, whatever becomes of this.
  void export_weights(Step step, Log& log);
  [[nodiscard]] Result<void> write_export(Step step, const std::filesystem::path& out);

  JobConfig config_;
  std::unique_ptr<Storage> storage_;
  CheckpointStore store_;
  std::optional<RestorePoint> found_;
  std::uint64_t tokenizer_ = 0;  ///< hash of the configured one; 0: bytes
  bool branch_cleared_ = false;  ///< nothing newer than found_ stands beside what this run seals; the storage lane's
};

}  // namespace troupe
