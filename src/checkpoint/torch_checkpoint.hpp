#pragma once
#include <cstdint>
#include <filesystem>

#include "src/base/result.hpp"
#include "src/checkpoint/foreign_tensors.hpp"
#include "src/checkpoint/storage.hpp"

namespace troupe {

inline constexpr const char* torch_metadata_file = ".metadata";

/// Reads what a folder of torch.distributed.checkpoint holds (torchtitan's step-N): `.metadata`, a pickle, and the sizes of its `.distcp`
/// files. The pickle is read as data (pickle.hpp): nothing in it is run. Every length and offset is checked against its file, entries of a
/// file must not overlap, blocks must cover their tensor once. Blocks. Errors name file and entry.
[[nodiscard]] Result<ForeignTensors> open_torch_checkpoint(Storage& storage, const std::filesystem::path& folder);

/// The whole number in a tensor of one value (train_state.step).
[[nodiscard]] Result<std::int64_t> read_whole_number(const ForeignTensors& tensors, Storage& storage, const std::string& name);

}  // namespace troupe
