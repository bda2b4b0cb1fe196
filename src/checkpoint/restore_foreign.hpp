#pragma once
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "src/checkpoint/foreign_tensors.hpp"
#include "src/checkpoint/restore.hpp"
#include "src/checkpoint/tensor_names.hpp"
#include "src/device/state_tensor.hpp"

namespace troupe {

/// The most host memory that values pass through on their way to one rank's state, where they must: for another order, type or device.
inline constexpr std::uint64_t foreign_staging_bytes = std::uint64_t{32} << 20U;

/// Whether `found` has all of `state` (whose views may be empty), in shape and in a type that converts, and nothing else. The error names
/// every tensor that is missing, too many, or of another shape or type, up to ten of them. `head_dim`: of the model.
[[nodiscard]] Result<void> check_foreign(const ForeignTensors& found, const ForeignNames& names, const StateTensors& state, const RestoreOptions& options,
                                         const std::string& where);

/// Fills this rank's parts: reads the bytes of its rows and no others, through at most 2 × foreign_staging_bytes. Blocks. Errors as
/// check_foreign's, or name file and tensor; nothing is promised about `state` after one.
[[nodiscard]] Result<void> restore_foreign(const ForeignTensors& found, const ForeignNames& names, std::int64_t head_dim, Storage& storage,
                                           const StateTensors& state, const RestoreOptions& options, const std::string& where);

}  // namespace troupe
