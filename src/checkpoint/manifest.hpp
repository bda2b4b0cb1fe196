#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/base/ids.hpp"
#include "src/base/result.hpp"
#include "src/checkpoint/safetensors.hpp"
#include "src/model/programs.hpp"

namespace troupe {

/// What the run is at when the checkpoint's step is over; all that a resume needs besides the tensors.
struct RunPosition {
  Step step;
  EpochId epoch;
  std::uint32_t world = 1;  ///< ranks that wrote it
  std::uint64_t config_hash = 0;
  std::uint64_t data_row = 0;   ///< rows of data used so far: the next step begins with this row
  std::uint64_t tokens = 0;     ///< valid tokens trained on so far
  bool model_only = false;      ///< weights alone: good for a new run, not for going on
  std::string config = {};      ///< the run's merged configuration as TOML, to tell a resumed run what changed; may be empty
  std::uint64_t tokenizer = 0;  ///< hash of the tokenizer whose ids the model learns; 0: bytes
};

/// Rows [first_row, first_row + rows) of a tensor, in one file.
struct TensorPart {
  std::uint32_t file = 0;
  std::int64_t first_row = 0, rows = 0;
  std::uint64_t begin = 0;  ///< byte in the file
};

struct StoredTensor {
  StoredType dtype = StoredType::f32;
  std::vector<std::int64_t> shape;  ///< of the whole tensor
  bool model = true;
  std::vector<TensorPart> parts;  ///< by first_row; together they cover the tensor; equal ranges are replicas
};

/// The content of manifest.json: what makes a folder of shards a checkpoint. A value.
struct Manifest {
  RunPosition position;
  std::vector<SavedShard> files;
  std::map<std::string, StoredTensor> tensors;

  [[nodiscard]] std::string to_json() const;  ///< with a checksum of itself
  /// `file` stands in messages.
  [[nodiscard]] static Result<Manifest> from_json(const std::string& text, const std::string& file);
};

/// The manifest for these shards, from their headers in `folder`; refuses a shard whose size is not what was saved, a tensor that
/// shards describe differently, and rows that are missing or overlap.
[[nodiscard]] Result<Manifest> assemble_manifest(Storage& storage, const std::filesystem::path& folder, const RunPosition& position,
                                                 const std::vector<SavedShard>& shards);

/// The JSON under the metadata key "parts" of a shard: for each tensor its place in the whole.
struct ShardPart {
  std::vector<std::int64_t> global_shape;
  std::int64_t first_row = 0;
  bool model = true;
};
[[nodiscard]] std::string shard_parts_to_json(const std::map<std::string, ShardPart>& parts);
[[nodiscard]] Result<std::map<std::string, ShardPart>> shard_parts_from_json(const std::string& text, const std::string& file);

}  // namespace troupe
