#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "src/data/file_set.hpp"

namespace troupe {

struct UnpackOptions {
  std::string folder;            ///< unpacked files are kept here; empty: compressed files are refused
  std::uint64_t most_bytes = 0;  ///< of all unpacked files in `folder` together
  /// Called now and then with compressed bytes read and in all. May be empty.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;
};

/// Gives every gzip or zstd file (told by its first bytes) a plain copy, made once and used again while size and time of the file stay,
/// so that documents can be read in any order: sets `content` and `bytes`. All members of a gzip file and all frames of a zstd file
/// are read, and skippable frames skipped. Errors name the file: it is cut off or damaged, the copies would take more than
/// `most_bytes`, or the disk is full. Call under a lock of the folder.
[[nodiscard]] Result<void> unpack_files(std::vector<DataFile>& files, const UnpackOptions& options);

}  // namespace troupe
