#pragma once
#include <optional>
#include <string>
#include <vector>

#include "src/checkpoint/checkpoint_store.hpp"
#include "src/checkpoint/foreign_tensors.hpp"
#include "src/checkpoint/settings.hpp"

namespace troupe {

/// What a run begins with, instead of initial weights.
struct RestorePoint {
  FoundCheckpoint checkpoint;
  std::optional<ForeignTensors> foreign;  ///< the folder is another program's, and this what it holds; the manifest then has a position alone
  bool own = true;                        ///< of this run's own folder; false: of checkpoint.initial_load_path
  RunPosition start;                      ///< step, data row and tokens at which the run begins: of the checkpoint, or 0 with weights alone
  bool model = true;                      ///< load the weights
  bool optimizer = true;                  ///< load moments and step counts
  Step schedule_before{0};                ///< steps that the schedule leaves out of its count: checkpoint.exclude_from_loading has lr_scheduler
};

/// The launcher's choice, data checked if the settings say so: the newest good checkpoint of the run (or load_step), else
/// initial_load_path, a folder of another program included; nothing: initial weights. Blocks. `warnings`: damaged ones that were passed over. Errors as
/// CheckpointStore::find; a damaged one with skip_damaged = false; a path that leads to none; train_state excluded where the run has checkpoints of its own.
[[nodiscard]] Result<std::optional<RestorePoint>> choose_restore_point(const CheckpointSettings& settings, const CheckpointStore& own, Storage& storage,
                                                                       std::vector<std::string>& warnings);

/// The same as a rank finds it: the one with which the run begins at `restore_step`. Reads manifests alone.
[[nodiscard]] Result<std::optional<RestorePoint>> restore_point_at(Step restore_step, const CheckpointSettings& settings, const CheckpointStore& own,
                                                                   Storage& storage);

}  // namespace troupe
