#pragma once
#include <filesystem>

#include "src/base/result.hpp"
#include "src/checkpoint/foreign_tensors.hpp"
#include "src/checkpoint/storage.hpp"

namespace troupe {

inline constexpr const char* hugging_face_index = "model.safetensors.index.json";
inline constexpr const char* hugging_face_single = "model.safetensors";

/// Reads the headers of a folder's safetensors: those that model.safetensors.index.json names, else model.safetensors, else all files of
/// that ending. Headers, sizes and index must agree in every tensor; nothing else is read. A tensor that lies in pieces (the files of
/// torch.distributed.checkpoint's HuggingFaceStorageWriter, and our own shards) is put together. Blocks. Errors name file and tensor.
[[nodiscard]] Result<ForeignTensors> open_hugging_face(Storage& storage, const std::filesystem::path& folder);

/// All of a small text file.
[[nodiscard]] Result<std::string> read_text(Storage& storage, const std::filesystem::path& file, std::uint64_t most_bytes);

}  // namespace troupe
