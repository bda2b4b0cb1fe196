#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "src/data/file_reads.hpp"
#include "src/data/file_set.hpp"
#include "src/data/record.hpp"

namespace troupe {

/// tokens, megatron: no text; such sources are opened by open_documents alone. table: Parquet or Arrow, each file by its first bytes.
enum class DataFormat : std::uint8_t { text, jsonl, tokens, megatron, table };

struct CorpusOptions {
  DataFormat format = DataFormat::text;
  std::vector<std::string> paths;
  bool allow_binary = false;
  bool skip_broken = false;          ///< a broken JSONL record is left out and counted; else it is an error
  RecordRules record = {};           ///< of JSONL and tables
  std::string section = "training";  ///< whose dataset_path stands in messages
  std::string index_folder =
      {};  ///< the index, and plain copies of compressed files, are kept here and used again; empty: it lies in an unnamed temporary file
  std::uint64_t unpack_limit_bytes = std::uint64_t{100} << 30U;  ///< of the plain copies in index_folder together
  /// Called now and then while indexing, with bytes read and bytes in all. May be empty.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress = {};
};

/// Counts that the index found.
struct CorpusFacts {
  std::uint64_t documents = 0, text_bytes = 0;
  std::uint64_t empty_documents = 0;  ///< skipped: empty texts; of text files also those of white space alone
  std::uint64_t blank_lines = 0;      ///< skipped lines of JSONL
  std::uint64_t broken_records = 0;   ///< left out, where that was asked for
  std::string first_broken = {};      ///< file, line and what is wrong; empty also where the index is an earlier run's
  bool from_cache = false;
};

/// Where a document's bytes stand.
struct DocumentPlace {
  std::uint32_t file = 0;
  std::uint64_t offset = 0;
  std::uint64_t stored = 0;  ///< bytes from its start up to the next document's; a JSONL record is the first line of these
  std::uint64_t text = 0;    ///< bytes of its text
};

/// Files and the index of their documents. Immutable after `open`: any thread. The index is mapped from a file (8 bytes a
/// document), so memory does not grow with the data.
class Corpus {
 public:
  /// Blocks: reads all data once unless the index is cached; compressed files are unpacked first and tables written out. Of several processes with one
  /// index_folder one does that, the others wait. What was done of it before an interruption, by file, is not done again. Errors name file, line and byte.
  [[nodiscard]] static Result<std::shared_ptr<const Corpus>> open(const CorpusOptions& options);
  virtual ~Corpus() = default;
  [[nodiscard]] virtual const CorpusFacts& facts() const noexcept = 0;
  [[nodiscard]] virtual const std::vector<DataFile>& files() const noexcept = 0;
  [[nodiscard]] virtual DataFormat format() const noexcept = 0;
  /// Bytes of the text of document `i`, in the order of the files.
  [[nodiscard]] virtual std::uint64_t text_bytes(std::uint64_t i) const noexcept = 0;
  [[nodiscard]] virtual DocumentPlace place(std::uint64_t i) const noexcept = 0;
  [[nodiscard]] virtual const RecordRules& record() const noexcept = 0;
  /// In words: "data.txt at byte 28272", "data.parquet, row 7". Reads a few bytes where it is a table.
  [[nodiscard]] std::string where(std::uint64_t i) const;
};

/// Reads documents of a corpus. One thread; holds a few open files and, for JSONL, the text of the document read last.
class DocumentReader {
 public:
  explicit DocumentReader(std::shared_ptr<const Corpus> corpus, ReadFile read_file = {});
  /// Bytes [first, first + out.size()) of the text of document `i`. Throws std::runtime_error naming file and byte when the file
  /// cannot be read or is no longer what was indexed.
  void read(std::uint64_t i, std::uint64_t first, std::span<char> out);

 private:
  void decode(std::uint64_t i);
  std::shared_ptr<const Corpus> corpus_;
  FileReads files_;
  std::string text_;
  std::uint64_t decoded_ = ~std::uint64_t{0};
};

}  // namespace troupe
