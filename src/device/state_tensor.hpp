#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "src/device/tensor_view.hpp"

namespace troupe {

/// One rank's part of a named tensor of the training state: what a checkpoint stores and restores, whatever the mesh.
/// Tensors are sharded by rows (dimension 0), padded where rows do not divide; padding is not part of the state.
struct StateTensor {
  std::string name;            ///< "layers.0.attention.wq.weight", "optimizer.exp_avg.layers.0…", "optimizer.step.…"
  Shape global_shape;          ///< of the whole tensor
  std::int64_t first_row = 0;  ///< of this part in the whole
  std::int64_t rows = 0;       ///< valid rows here; 0: this rank holds none
  TensorView view;             ///< [rows, …] contiguous device memory
  bool model = true;           ///< false: optimizer state, left out of model-only checkpoints
  bool replicated = false;     ///< every rank holds all rows and restores them; one rank's are enough to save
};
using StateTensors = std::vector<StateTensor>;

}  // namespace troupe
