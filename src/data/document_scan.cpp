#include "src/data/document_scan.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "src/data/json_line.hpp"

namespace troupe {
namespace {

constexpr std::size_t piece_bytes = std::size_t{1} << 20U;
constexpr std::uint64_t longest_document = 0xffffffffU;

bool blank(std::string_view text) { return text.find_first_not_of(" \t\r\n\v\f") == std::string_view::npos; }

/// Finds documents in the lines of one file, which come in parts: a line may stretch over several pieces of the file.
class LineScanner {
 public:
  virtual ~LineScanner() = default;
  /// `part` stands at byte `offset` and holds no line feed; `ends`: one follows it. Returns what is wrong, or nothing.
  virtual std::string take(std::uint64_t offset, std::string_view part, bool ends) = 0;
  virtual std::string finish(std::uint64_t end) = 0;
  ScanCounts counts;
};

class TextScanner final : public LineScanner {
 public:
  explicit TextScanner(const DocumentSink& sink) : sink_(sink) {}
  std::string take(std::uint64_t offset, std::string_view part, bool ends) override {
    if (line_.size() < 3) line_.append(part.substr(0, 3));
    blank_line_ = blank_line_ && blank(part);
    return ends ? end_line(offset + part.size() + 1) : std::string{};
  }
  std::string finish(std::uint64_t end) override {
    auto wrong = end_line(end);
    return wrong.empty() ? end_document(end) : wrong;
  }

 private:
  std::string end_line(std::uint64_t next) {
    std::string wrong;
    if (line_ == "%" || line_ == "%\r") {
      wrong = end_document(line_begin_);
      document_begin_ = next;
      blank_document_ = true;
    } else {
      blank_document_ = blank_document_ && blank_line_;
    }
    line_begin_ = next;
    line_.clear();
    blank_line_ = true;
    return wrong;
  }
  std::string end_document(std::uint64_t end) {
    if (end - document_begin_ > longest_document) return ":byte " + std::to_string(document_begin_) + ": this document is longer than 4 GiB; split it";
    if (end > document_begin_ && !blank_document_)
      sink_(document_begin_, end - document_begin_);
    else if (end > document_begin_)
      ++counts.empty_documents;
    return {};
  }
  const DocumentSink& sink_;
  std::string line_;  ///< its first bytes
  std::uint64_t document_begin_ = 0, line_begin_ = 0;
  bool blank_line_ = true, blank_document_ = true;
};

class JsonScanner final : public LineScanner {
 public:
  JsonScanner(const DocumentSink& sink, const ScanRules& rules, bool table) : sink_(sink), rules_(rules), table_(table) {}
  std::string take(std::uint64_t offset, std::string_view part, bool ends) override {
    if (line_.empty()) begin_ = offset;
    if (line_.size() + part.size() > longest_document) return where(0) + "this line is longer than 4 GiB; split it";
    if (!ends) {
      line_.append(part);
      return {};
    }
    if (line_.empty()) return record(part);  // the whole line in one piece: nothing to copy
    line_.append(part);
    auto wrong = record(line_);
    line_.clear();
    if (line_.capacity() > 4 * piece_bytes) line_.shrink_to_fit();
    return wrong;
  }
  std::string finish(std::uint64_t) override { return line_.empty() ? std::string{} : record(line_); }

 private:
  /// Of a table the row, from 0: its copy is nothing that a user sees.
  [[nodiscard]] std::string where(std::uint64_t byte) const {
    if (table_) return ": row " + std::to_string(number_ - 1) + ": ";
    return ":" + std::to_string(number_) + ": (byte " + std::to_string(begin_ + byte) + ") ";
  }
  std::string record(std::string_view line) {
    ++number_;
    if (blank(line)) {
      ++counts.blank_lines;
      return {};
    }
    JsonLineProblem problem;
    const std::string text = text_of_json_line(line, problem, rules_.record);
    if (!problem.text.empty() && !rules_.skip_broken) return where(problem.byte) + problem.text;
    if (!problem.text.empty()) {
      if (counts.broken_records++ == 0) counts.first_broken = where(problem.byte) + problem.text;
      return {};
    }
    if (text.empty())
      ++counts.empty_documents;
    else
      sink_(begin_, text.size());
    return {};
  }
  const DocumentSink& sink_;
  const ScanRules& rules_;
  bool table_;
  std::string line_;
  std::uint64_t begin_ = 0, number_ = 0;
};

struct OpenFile {
  explicit OpenFile(const std::string& path) : descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~OpenFile() {
    if (descriptor >= 0) close(descriptor);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int descriptor;
};

Result<void> refuse_binary(const DataFile& file, std::uint64_t offset, std::string_view piece) {
  const void* nul = std::memchr(piece.data(), 0, piece.size());
  if (nul == nullptr) return {};
  const auto at = offset + static_cast<std::uint64_t>(static_cast<const char*>(nul) - piece.data());
  return Error{file.path + ": looks like a binary file (NUL byte at " + std::to_string(at) + "); leave it out of training.dataset_path (\"!*" +
               (file.path.find('.', file.path.rfind('/') + 1) == std::string::npos ? "name" : file.path.substr(file.path.rfind('.'))) +
               "\"), or set data.allow_binary = true"};
}

std::string feed(LineScanner& scanner, std::uint64_t offset, std::string_view piece) {
  while (!piece.empty()) {
    const auto feed_at = piece.find('\n');
    const bool ends = feed_at != std::string_view::npos;
    const auto part = piece.substr(0, feed_at);
    if (auto wrong = scanner.take(offset, part, ends); !wrong.empty()) return wrong;
    const std::size_t used = part.size() + (ends ? 1 : 0);
    offset += used;
    piece.remove_prefix(used);
  }
  return {};
}

}  // namespace

Result<ScanCounts> scan_documents(const DataFile& file, DataFormat format, const ScanRules& rules, const DocumentSink& sink,
                                  const std::function<void(std::uint64_t)>& read_so_far) {
  const OpenFile source(file.content);
  if (source.descriptor < 0) return Error{"cannot read " + file.path + ": " + std::strerror(errno)};
  std::unique_ptr<LineScanner> scanner;
  if (format == DataFormat::text)
    scanner = std::make_unique<TextScanner>(sink);
  else
    scanner = std::make_unique<JsonScanner>(sink, rules, file.table);
  std::vector<char> piece(piece_bytes);
  std::uint64_t offset = 0;
  for (;;) {
    const ssize_t got = pread(source.descriptor, piece.data(), piece.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Error{file.path + ": cannot read at byte " + std::to_string(offset) + ": " + std::strerror(errno)};
    if (got == 0) break;
    const std::string_view bytes(piece.data(), static_cast<std::size_t>(got));
    if (!rules.allow_binary) {
      auto checked = refuse_binary(file, offset, bytes);
      if (!checked) return checked.error();
    }
    if (auto wrong = feed(*scanner, offset, bytes); !wrong.empty()) return Error{file.path + wrong};
    offset += bytes.size();
    if (read_so_far) read_so_far(bytes.size());
  }
  if (auto wrong = scanner->finish(offset); !wrong.empty()) return Error{file.path + wrong};
  if (offset != file.bytes)
    return Error{file.path + ": changed while it was read: " + std::to_string(file.bytes) + " bytes before, " + std::to_string(offset) + " now"};
  if (!scanner->counts.first_broken.empty()) scanner->counts.first_broken.insert(0, file.path);
  return scanner->counts;
}

}  // namespace troupe
