#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "src/base/result.hpp"
#include "src/data/corpus.hpp"
#include "src/data/record.hpp"

namespace troupe {

/// Told about each document of a file in its order: where it starts, where the next one may start, bytes of its text.
using DocumentSink = std::function<void(std::uint64_t offset, std::uint64_t text_bytes)>;

struct ScanCounts {
  std::uint64_t empty_documents = 0, blank_lines = 0, broken_records = 0;
  std::string first_broken = {};  ///< file, line and what is wrong with it
};

struct ScanRules {
  bool allow_binary = false;
  bool skip_broken = false;  ///< a broken JSONL record is counted; else it ends the scan
  RecordRules record = {};   ///< of JSONL
};

/// Walks one file once, in pieces; memory is bounded by a piece, and by the longest line for JSONL.
/// text: documents are parted by lines that hold a single '%' (fortune files); without one the file is one document. Bytes are
/// kept as they stand. Every other format is JSON lines, of a table those of its plain copy: records end at LF only, a CR before it goes, blank lines are
/// skipped. `read` is called with the bytes of each piece.
[[nodiscard]] Result<ScanCounts> scan_documents(const DataFile& file, DataFormat format, const ScanRules& rules, const DocumentSink& sink,
                                                const std::function<void(std::uint64_t)>& read);

}  // namespace troupe
