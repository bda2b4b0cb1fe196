#pragma once
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "src/data/file_set.hpp"

namespace troupe {

/// How bytes of files are read: pread of `descriptor`, the open file number `file` of a source. A seam, for tests and for whoever watches.
using ReadFile = std::function<ssize_t(std::uint32_t file, int descriptor, std::span<char> out, std::uint64_t offset)>;

/// Reads places of a source's files; holds a few of them open. One thread. `files` outlives it.
class FileReads {
 public:
  /// `read_file`: empty for pread.
  FileReads(std::span<const DataFile> files, ReadFile read_file);
  ~FileReads();
  FileReads(const FileReads&) = delete;
  FileReads& operator=(const FileReads&) = delete;
  /// Fills `out` from byte `offset` on. Throws std::runtime_error naming file and byte when the file cannot be read or ends before.
  void read(std::uint32_t file, std::uint64_t offset, std::span<char> out);
  /// For what is read through a mapping: reads its last byte, so that whoever watches sees the file. Throws as `read`. A file that has no name any more is
  /// taken as it is.
  void probe(std::uint32_t file, std::uint64_t last_byte);

 private:
  int open_file(std::uint32_t file);
  void fill(std::uint32_t file, int descriptor, std::uint64_t offset, std::span<char> out);

  std::span<const DataFile> files_;
  ReadFile read_file_;
  std::vector<std::pair<std::uint32_t, int>> open_;  ///< newest last
};

}  // namespace troupe
