#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "src/base/result.hpp"

namespace troupe {

struct DataFile {
  std::string path;         ///< as it was named
  std::uint64_t bytes = 0;  ///< of `content`
  std::int64_t modified_nanos = 0;
  std::string content;  ///< where its plain bytes lie: `path`, or the copy of a compressed file or a table
  bool table = false;   ///< `content` is a line of JSON for each row of it
};

/// The regular files that paths and globs name, sorted by path, each once even when several patterns or links lead to it; a pattern
/// that begins with '!' leaves out what it matches (whole path or file name). The order does not depend on the file system.
/// `section`: whose dataset_path is named in messages. Errors: a path or glob that names nothing, a folder, a file that cannot be read.
[[nodiscard]] Result<std::vector<DataFile>> find_data_files(const std::vector<std::string>& patterns, const std::string& section = "training");

}  // namespace troupe
