#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/checkpoint/manifest.hpp"
#include "src/checkpoint/storage.hpp"

namespace troupe {

/// A checkpoint that can be loaded.
struct FoundCheckpoint {
  std::filesystem::path folder;
  Manifest manifest;
};

/// The folder of a run's checkpoints: step-N for each sealed one, step-N.tmp-E while it is written. One process seals and purges;
/// any may look. All calls block.
///
/// What holds at every instant, also when the process or the host dies: step-N is complete, or it is not there. Its shards are
/// synced, then the manifest, then the folder; then the folder is renamed, then its parent synced.
class CheckpointStore {
 public:
  /// `storage` outlives it.
  CheckpointStore(const std::filesystem::path& folder, Storage& storage) : folder_(std::filesystem::absolute(folder)), storage_(storage) {}

  /// Where all ranks write their parts.
  [[nodiscard]] std::filesystem::path writing_folder(Step step, EpochId epoch) const;
  [[nodiscard]] std::filesystem::path sealed_folder(Step step) const;

  /// Writes the manifest of the parts that lie in writing_folder(position.step, position.epoch) and renames it into place. One of the
  /// same step is replaced, and what failed saves of earlier steps left is removed. On an error nothing is sealed; call give_up.
  [[nodiscard]] Result<void> seal(const RunPosition& position, const std::vector<SavedShard>& shards);
  /// Removes what was written of a checkpoint that will not be sealed.
  [[nodiscard]] Result<void> give_up(Step step, EpochId epoch);

  /// Steps whose folder has a manifest, ascending.
  [[nodiscard]] Result<std::vector<Step>> steps() const;
  /// The newest that is whole, or with `load_step` >= 0 that one: every file there, of the right size and, if `hashes`, the right XXH3
  /// (reads everything once). Damaged ones are passed over with a line in `warnings`; nothing: there is no checkpoint at all.
  /// Errors: load_step names none or a damaged one (the steps that exist are named); all that exist are damaged.
  [[nodiscard]] Result<std::optional<FoundCheckpoint>> find(std::int64_t load_step, bool hashes, std::vector<std::string>& warnings) const;
  /// From now on `find` tells, on its thread, how many of how many bytes of a checkpoint it has read and checked, counted in whole pieces.
  using Progress = std::function<void(Step step, std::uint64_t done, std::uint64_t total)>;
  void watch(Progress progress) { progress_ = std::move(progress); }
  [[nodiscard]] const Progress& progress() const noexcept { return progress_; }
  /// Reads a sealed checkpoint's manifest; what a rank does after the Coordinator chose and checked.
  [[nodiscard]] Result<FoundCheckpoint> open(Step step) const;

  /// Deletes whole checkpoints older than the newest `keep` whole ones (0: none), never `spare`, never what is not ours or not whole.
  [[nodiscard]] Result<void> purge(std::int64_t keep, std::optional<Step> spare = std::nullopt);
  /// Renames every step-M with `step` < M ≤ `until` to step-M.abandoned-K (the first K that is free): a run that went back to `step` goes on without
  /// them. Under that name nothing finds, replaces or purges them. Returns the new names. After an error some may be renamed; call again.
  [[nodiscard]] Result<std::vector<std::string>> set_aside_after(Step step, Step until = Step{std::numeric_limits<Step::Value>::max()});
  /// At the start of a run: removes what crashed saves and purges left, puts back what a crashed replacement moved aside.
  [[nodiscard]] Result<std::vector<std::string>> clean();

 private:
  [[nodiscard]] Result<FoundCheckpoint> check(Step step, bool hashes) const;
  /// Ranks save in order, so nobody writes to an earlier step once a later one is sealed.
  void remove_older_leftovers(Step sealed);
  std::filesystem::path folder_;
  Storage& storage_;
  Progress progress_;
};

}  // namespace troupe
