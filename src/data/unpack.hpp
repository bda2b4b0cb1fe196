#pragma once
#include <vector>

#include "src/base/result.hpp"
#include "src/data/plain_copy.hpp"

namespace troupe {

/// Gives every gzip or zstd file (told by its first bytes) a plain copy, made once and used again while size and time of the file stay,
/// so that documents can be read in any order: sets `content` and `bytes`. All members of a gzip file and all frames of a zstd file
/// are read, and skippable frames skipped. Errors name the file: it is cut off or damaged, the copies would take more than
/// `most_bytes`, or the disk is full. Call under a lock of the folder.
[[nodiscard]] Result<void> unpack_files(std::vector<DataFile>& files, const UnpackOptions& options);

}  // namespace troupe
