#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "src/base/result.hpp"
#include "src/data/file_set.hpp"

namespace troupe {

/// A file mapped for reading, as large as it was when it was opened. Somebody may cut it off at any time, and a look at a page that is gone ends the process
/// (SIGBUS): what is read is read by `copy`.
class MappedFile {
 public:
  [[nodiscard]] static Result<std::unique_ptr<MappedFile>> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  /// As it was when it was opened, to be compared with later.
  [[nodiscard]] const DataFile& file() const noexcept { return file_; }
  [[nodiscard]] std::uint64_t size() const noexcept { return file_.bytes; }
  /// Bytes from `offset` on, which lie within `size()`. False: the file has lost some of them. Any thread.
  [[nodiscard]] bool copy(std::uint64_t offset, std::span<std::byte> out) const noexcept;
  template <class T>
  [[nodiscard]] bool copy(std::uint64_t offset, std::span<T> out) const noexcept {
    return copy(offset, std::as_writable_bytes(out));
  }
  /// What to say where `copy` does not give all.
  [[nodiscard]] std::string lost() const { return file_.path + ": the file is shorter than when it was opened"; }

 private:
  MappedFile(DataFile file, std::uint64_t inode, void* memory) : file_(std::move(file)), inode_(inode), memory_(memory) {}
  [[nodiscard]] bool is_whole() const noexcept;
  [[nodiscard]] bool copy_unguarded(const std::byte* from, std::span<std::byte> out) const noexcept;
  DataFile file_;
  std::uint64_t inode_;
  void* memory_;
};

}  // namespace troupe
