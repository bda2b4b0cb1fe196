#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "src/checkpoint/manifest.hpp"
#include "src/checkpoint/shard_file.hpp"

namespace troupe {

/// Reads ranges of a checkpoint's files: every piece that they touch once, checked, by a few threads at a time.
class ShardReads {
 public:
  /// Both outlive it.
  ShardReads(const Manifest& manifest, std::filesystem::path folder, Storage& storage) : manifest_(manifest), folder_(std::move(folder)), storage_(storage) {}
  /// Adds a range; `to` is filled by the next `run`. The error is that of the file's header.
  [[nodiscard]] Result<void> add(std::uint32_t file, std::uint64_t begin, std::span<std::byte> to);
  /// Adds rows [first, first + count) of a tensor; `out`: their bytes. The error names a row that lies in no file, or is that of a header.
  [[nodiscard]] Result<void> add_rows(const StoredTensor& stored, std::int64_t first, std::int64_t count, std::span<std::byte> out);
  /// Adds all pieces of all files, to be checked.
  [[nodiscard]] Result<void> add_all();
  /// Reads all that was added since the last one. Blocks. The error names file and bytes. `progress` (may be empty) is told on this thread, now and then and
  /// at the end, how many of how many bytes are read, counted in whole pieces.
  [[nodiscard]] Result<void> run(const std::function<void(std::uint64_t done, std::uint64_t total)>& progress = {});

 private:
  struct Range {
    std::uint64_t begin;  ///< in its piece
    std::span<std::byte> to;
  };
  struct Piece {
    std::uint32_t file;
    std::uint64_t number;
    std::vector<Range> ranges;
  };
  [[nodiscard]] Result<const ShardHeader*> header_of(std::uint32_t file);
  [[nodiscard]] std::string path(std::uint32_t file) const { return (folder_ / manifest_.files[file].file).string(); }
  class Turn;

  const Manifest& manifest_;
  std::filesystem::path folder_;
  Storage& storage_;
  std::map<std::uint32_t, ShardHeader> headers_;
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::vector<Range>> wanted_;
};

}  // namespace troupe
