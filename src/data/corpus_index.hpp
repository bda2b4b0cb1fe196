#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "src/data/corpus.hpp"

namespace troupe {

/// One document in the index file. `stored` is the distance to the next document of the same run.
struct IndexEntry {
  std::uint32_t text = 0, stored = 0;
};
/// Up to 64 documents of one file that follow each other.
struct IndexRun {
  std::uint64_t first_document = 0, offset = 0;
  std::uint32_t file = 0, reserved = 0;
};
struct IndexHeader {
  char magic[8] = {'T', 'R', 'P', 'I', 'D', 'X', '0', '2'};
  std::uint64_t key = 0;  ///< of the files, their sizes and times, and of how they are read
  std::uint64_t documents = 0, runs = 0, text_bytes = 0, empty_documents = 0, blank_lines = 0, broken_records = 0;
  std::uint64_t hash = 0;  ///< XXH3-64 of all that follows
};

/// An index file, mapped. Entries first, then runs.
class MappedIndex {
 public:
  ~MappedIndex();
  MappedIndex(const MappedIndex&) = delete;
  MappedIndex& operator=(const MappedIndex&) = delete;
  /// Null when the file is none of ours, is of another key, or is damaged.
  [[nodiscard]] static std::unique_ptr<MappedIndex> map(int descriptor, std::uint64_t key);
  IndexHeader header;
  std::span<const IndexEntry> entries;
  std::span<const IndexRun> runs;

 private:
  MappedIndex() = default;
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

/// The index of these files: the cached one, or a new one made by reading them all.
[[nodiscard]] Result<std::unique_ptr<MappedIndex>> index_documents(const CorpusOptions& options, const std::vector<DataFile>& files, bool& from_cache,
                                                                   std::string& first_broken);

}  // namespace troupe
