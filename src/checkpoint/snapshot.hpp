#pragma once
#include <functional>
#include <memory>

#include "src/checkpoint/manifest.hpp"
#include "src/checkpoint/storage.hpp"
#include "src/checkpoint/stored_type.hpp"
#include "src/device/state_tensor.hpp"
#include "src/model/programs.hpp"

namespace troupe {

/// How one rank copies its state out and writes it.
struct SnapshotOptions {
  std::uint32_t rank = 0, world = 1;          ///< of all ranks that save
  std::function<bool(Step)> model_only = {};  ///< leave the optimizer's state out of this step's checkpoint; empty: never
  StateTensors instead = {};                  ///< of weights of the same names, in a checkpoint of weights alone: averages
  StoredType export_type = StoredType::f32;   ///< of fp32 weights in a checkpoint of weights alone: f32, bf16 or f16
  /// Puts a copy of contiguous device memory to host memory on the stream; empty: memcpy.
  std::function<void(Stream&, const TensorView& from, std::byte* to)> copy_out = {};
  std::uint32_t replica = 0, replicas = 1;  ///< ranks that hold the same rows save their tensors in turn, each tensor once
};

/// The checkpoint program of one rank. `storage` outlives it. `state` names memory that outlives it; it is read in `copy` alone.
/// `save` writes one shard (shard_file.hpp), "rank-00000-of-00002.safetensors", and syncs it; it throws std::runtime_error when the storage
/// fails or when a weight is not finite: such a state must not take the place of a good one. It hashes on a thread of its own meanwhile.
[[nodiscard]] std::unique_ptr<SnapshotProgram> make_snapshot_program(StateTensors state, SnapshotOptions options, Storage& storage);

}  // namespace troupe
