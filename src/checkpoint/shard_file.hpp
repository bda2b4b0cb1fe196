#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "src/checkpoint/safetensors.hpp"
#include "src/checkpoint/storage.hpp"
#include "src/model/programs.hpp"

/// A checkpoint's shard: a safetensors file whose data begins at a multiple of 4096 and is hashed in pieces of 4 MiB. The hashes stand in
/// the header under the metadata key "pieces" (XXH3-64, 16 hexadecimal digits each), and the hash of the header stands in the manifest. So
/// a reader that needs a part of the file reads and checks that part alone.
namespace troupe {

inline constexpr std::uint64_t piece_bytes = std::uint64_t{4} << 20U;

[[nodiscard]] constexpr std::uint64_t pieces_of(std::uint64_t data_bytes) noexcept { return (data_bytes + piece_bytes - 1) / piece_bytes; }
[[nodiscard]] std::string pieces_to_text(std::span<const std::uint64_t> hashes);

/// The file's header with this hash for each piece, padded so that the data begins at a multiple of 4096: its length does not depend on them.
[[nodiscard]] std::string write_shard_header(SafetensorsHeader header, std::span<const std::uint64_t> hashes);
[[nodiscard]] std::uint64_t hash_of_header(std::string_view header) noexcept;

/// What stands in a shard's header, checked against what was saved.
struct ShardHeader {
  SafetensorsHeader safetensors;
  std::vector<std::uint64_t> pieces;  ///< hash of each
};

/// Reads and checks size and header of `folder`/`saved.file`. Errors name the file, what was expected and found.
[[nodiscard]] Result<ShardHeader> read_shard_header(StorageReader& reader, const std::filesystem::path& folder, const SavedShard& saved);

/// Reads piece `piece` into `buffer` (at least as long, better aligned to 4096) and checks it; its bytes. The error names file and bytes.
[[nodiscard]] Result<std::span<std::byte>> read_piece(StorageReader& reader, const std::string& file, const ShardHeader& header, std::uint64_t piece,
                                                      std::span<std::byte> buffer);

/// Memory for one piece.
class PieceBuffer {
 public:
  PieceBuffer();
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {memory_.get(), piece_bytes}; }

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept;
  };
  std::unique_ptr<std::byte, Free> memory_;
};

}  // namespace troupe
