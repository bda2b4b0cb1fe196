#pragma once
#include <filesystem>
#include <functional>
#include <string>

#include "src/checkpoint/manifest.hpp"
#include "src/checkpoint/storage.hpp"
#include "src/device/state_tensor.hpp"

namespace troupe {

struct RestoreOptions {
  bool model_only = false;   ///< take the weights and leave the optimizer's state as it is
  bool leave_model = false;  ///< leave the weights as they are
  std::string leave = {};    ///< tensors whose names begin so may be in the checkpoint alone
  /// Copies host memory into contiguous device memory; empty: memcpy.
  std::function<void(const std::byte* from, const TensorView& to)> copy_in = {};
};

/// Fills this rank's parts from a checkpoint of any number of ranks: each tensor's rows from whichever files hold them, reading only
/// those bytes. `folder` is the checkpoint's. Blocks. Errors name file and tensor, what was expected and what found; nothing is
/// promised about `state` after one. A checkpoint of weights alone is refused unless `model_only`.
[[nodiscard]] Result<void> restore_state(const Manifest& manifest, const std::filesystem::path& folder, Storage& storage, const StateTensors& state,
                                         const RestoreOptions& options = {});

}  // namespace troupe
