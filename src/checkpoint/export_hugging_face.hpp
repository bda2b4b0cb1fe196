#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "src/base/result.hpp"
#include "src/checkpoint/checkpoint_store.hpp"
#include "src/checkpoint/hugging_face_config.hpp"
#include "src/checkpoint/storage.hpp"
#include "src/checkpoint/stored_type.hpp"

namespace troupe {

/// What an export says besides the checkpoint's own tensors.
struct ExportPlan {
  ModelFacts facts;
  std::string family;  ///< model.name
  std::int64_t head_dim = 0;
  std::filesystem::path assets;                             ///< folder of Hugging Face whose tokenizer files are copied; empty: none
  std::optional<StoredType> dtype;                          ///< of the values: f32, bf16 or f16; nothing: as the checkpoint has them
  std::uint64_t most_file_bytes = std::uint64_t{5} << 30U;  ///< of tensors in one file; a larger tensor gets a file of its own
};

/// Writes the weights of a checkpoint as a folder that transformers loads: config.json, safetensors (with an index if more than one), and the
/// tokenizer files of `assets`. Reads and writes in blocks, so that memory does not grow with the model. It is written beside `out` and
/// renamed into place: `out` is whole or not there. Blocks. Errors: `out` exists and is not empty, a tensor has no name there, the storage's.
[[nodiscard]] Result<void> export_hugging_face(const FoundCheckpoint& checkpoint, Storage& storage, const ExportPlan& plan, const std::filesystem::path& out);

}  // namespace troupe
