#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "src/base/result.hpp"
#include "src/data/file_set.hpp"

namespace troupe {

/// A file mapped for reading; as large as it was when it was opened.
class MappedFile {
 public:
  [[nodiscard]] static Result<std::unique_ptr<MappedFile>> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  /// As it was when it was opened, to be compared with later.
  [[nodiscard]] const DataFile& file() const noexcept { return file_; }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {static_cast<const std::byte*>(memory_), file_.bytes}; }

 private:
  MappedFile(DataFile file, void* memory) : file_(std::move(file)), memory_(memory) {}
  DataFile file_;
  void* memory_;
};

}  // namespace troupe
