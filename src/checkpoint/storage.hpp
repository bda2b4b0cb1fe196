#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/base/result.hpp"

namespace troupe {

/// A file being written. Bytes are durable after `sync`, its name after a `sync_folder` of the folder that holds it.
class StorageWriter {
 public:
  virtual ~StorageWriter() = default;
  /// Appends. Large pieces, a multiple of 4096 bytes at memory that is aligned to 4096, cost least.
  [[nodiscard]] virtual Result<void> write(std::span<const std::byte> bytes) = 0;
  /// Writes over bytes at the beginning that were appended before.
  [[nodiscard]] virtual Result<void> rewrite_start(std::span<const std::byte> bytes) = 0;
  [[nodiscard]] virtual Result<void> sync() = 0;
};

/// A file being read.
class StorageReader {
 public:
  virtual ~StorageReader() = default;
  [[nodiscard]] virtual std::uint64_t size() const noexcept = 0;
  /// Fills `out` from byte `offset`; short files are an error. Memory and offset aligned to 4096 cost least.
  [[nodiscard]] virtual Result<void> read_at(std::uint64_t offset, std::span<std::byte> out) = 0;
};

struct StorageEntry {
  std::string name;
  bool folder = false;
};

/// Where checkpoints lie, behind a seam so that tests can tear writes and fill the disk. All calls block. Any thread, but one
/// thread a file. Errors name the path and what the system said.
class Storage {
 public:
  virtual ~Storage() = default;
  [[nodiscard]] virtual Result<void> make_folders(const std::filesystem::path& folder) = 0;                    ///< with parents; fine if it is there
  [[nodiscard]] virtual Result<std::unique_ptr<StorageWriter>> create(const std::filesystem::path& file) = 0;  ///< empties an old one
  [[nodiscard]] virtual Result<std::unique_ptr<StorageReader>> open(const std::filesystem::path& file) = 0;
  [[nodiscard]] virtual Result<void> sync_folder(const std::filesystem::path& folder) = 0;
  [[nodiscard]] virtual Result<void> rename(const std::filesystem::path& from, const std::filesystem::path& to) = 0;
  [[nodiscard]] virtual Result<void> remove(const std::filesystem::path& path) = 0;                       ///< with all that is below; fine if it is not there
  [[nodiscard]] virtual Result<std::vector<StorageEntry>> list(const std::filesystem::path& folder) = 0;  ///< empty if it is not there
  [[nodiscard]] virtual bool exists(const std::filesystem::path& path) = 0;
  [[nodiscard]] virtual std::uint64_t free_bytes(const std::filesystem::path& path) = 0;  ///< for messages
};

/// The file system of this host.
[[nodiscard]] std::unique_ptr<Storage> make_posix_storage();

}  // namespace troupe
