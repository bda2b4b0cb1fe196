#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "src/base/result.hpp"
#include "src/data/file_set.hpp"

namespace troupe {

struct UnpackOptions {
  std::string folder;            ///< copies are kept here; empty: files that need one are refused
  std::uint64_t most_bytes = 0;  ///< of all copies in `folder` together
  /// Called now and then with bytes read of the files and in all. May be empty.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;
};

/// Takes the bytes of a copy in their order; says what went wrong, or nothing.
using CopySink = std::function<std::string(std::span<const char>)>;

/// Plain copies, in a folder, of files whose documents cannot be read in any order as they lie. A copy appears when it is whole and is used again while
/// size and time of its file stay. One thread; call under a lock of the folder.
class PlainCopies {
 public:
  /// `total`: bytes of all files that will be given, for progress.
  PlainCopies(const UnpackOptions& options, std::uint64_t total) : options_(options), total_(total) {}
  /// Sets `content` and `bytes` of the file to those of its copy; `fill` writes that where it is not there yet, and says what is wrong, or nothing.
  /// `how`: whatever decides its bytes beside the file. Errors name the file: what `fill` said, copies beyond `most_bytes`, a full disk.
  Result<void> give(DataFile& file, const std::string& how, const std::function<std::string(const CopySink&)>& fill);
  /// So many more bytes of the files are read.
  void read(std::uint64_t bytes);

 private:
  Result<void> write(const DataFile& file, const std::string& target, const std::function<std::string(const CopySink&)>& fill) const;

  const UnpackOptions& options_;
  std::uint64_t total_, done_ = 0;
};

}  // namespace troupe
