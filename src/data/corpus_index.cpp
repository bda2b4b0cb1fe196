#include "src/data/corpus_index.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "src/data/document_scan.hpp"

namespace troupe {
namespace {

constexpr std::uint64_t run_length = 64;
constexpr std::size_t buffered_entries = 8192;

std::uint64_t key_of(const CorpusOptions& options, const std::vector<DataFile>& files) {
  std::string text =
      std::to_string(static_cast<int>(options.format)) + (options.allow_binary ? "b" : "t") + (options.skip_broken ? "s" : "") + options.record.key();
  for (const auto& file : files) {
    text += "\n" + std::filesystem::absolute(file.path).string() + "\n" + std::to_string(file.bytes) + " " + std::to_string(file.modified_nanos);
  }
  return XXH3_64bits(text.data(), text.size());
}

/// Appends the index to a file as documents are found; holds one buffer and the runs.
class IndexWriter {
 public:
  explicit IndexWriter(int descriptor) : descriptor_(descriptor), hash_(XXH3_createState(), &XXH3_freeState) {
    XXH3_64bits_reset(hash_.get());
    if (lseek(descriptor_, sizeof(IndexHeader), SEEK_SET) < 0) failure_ = errno;
  }
  void begin_file(std::uint32_t file) {
    file_ = file;
    fresh_run_ = true;
  }
  void add(std::uint64_t offset, std::uint64_t text) {
    close_last(offset);
    const bool far = !fresh_run_ && offset - last_offset_ > 0xffffffffU;
    if (fresh_run_ || far || header_.documents - runs_.back().first_document == run_length) {
      runs_.push_back({header_.documents, offset, file_, 0});
      fresh_run_ = false;
    }
    pending_ = {static_cast<std::uint32_t>(text), 0};
    has_pending_ = true;
    last_offset_ = offset;
    ++header_.documents;
    header_.text_bytes += text;
  }
  void end_file(std::uint64_t bytes) { close_last(bytes); }
  int finish(std::uint64_t key, const ScanCounts& counts) {
    flush();
    append(runs_.data(), runs_.size() * sizeof(IndexRun));
    header_.key = key;
    header_.runs = runs_.size();
    header_.empty_documents = counts.empty_documents;
    header_.blank_lines = counts.blank_lines;
    header_.broken_records = counts.broken_records;
    header_.hash = XXH3_64bits_digest(hash_.get());
    if (failure_ == 0 && pwrite(descriptor_, &header_, sizeof header_, 0) != static_cast<ssize_t>(sizeof header_)) failure_ = errno == 0 ? EIO : errno;
    return failure_;
  }

 private:
  void close_last(std::uint64_t next) {
    if (!has_pending_) return;
    pending_.stored = static_cast<std::uint32_t>(std::min<std::uint64_t>(next - last_offset_, 0xffffffffU));
    buffer_.push_back(pending_);
    has_pending_ = false;
    if (buffer_.size() == buffered_entries) flush();
  }
  void flush() {
    append(buffer_.data(), buffer_.size() * sizeof(IndexEntry));
    buffer_.clear();
  }
  void append(const void* data, std::size_t bytes) {
    XXH3_64bits_update(hash_.get(), data, bytes);
    const char* at = static_cast<const char*>(data);
    while (failure_ == 0 && bytes > 0) {
      const ssize_t written = write(descriptor_, at, bytes);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) {
        failure_ = written < 0 ? errno : EIO;
        return;
      }
      at += written;
      bytes -= static_cast<std::size_t>(written);
    }
  }
  int descriptor_, failure_ = 0;
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> hash_;
  IndexHeader header_;
  std::vector<IndexEntry> buffer_;
  std::vector<IndexRun> runs_;
  IndexEntry pending_;
  std::uint64_t last_offset_ = 0;
  std::uint32_t file_ = 0;
  bool fresh_run_ = true, has_pending_ = false;
};

/// An open file without a name, or with one that goes when it is not kept.
struct Descriptor {
  int value = -1;
  Descriptor() = default;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (value >= 0) close(value);
  }
};

/// Opens `name` anew for an index that is renamed to it when it is whole; -1 and errno.
int open_part(const std::string& name) { return open((name + ".new").c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644); }

/// Indexes a set of files. Where the index is kept, so is that of each file until the whole is there: what was interrupted goes on with the
/// file that it stood in.
class Scan {
 public:
  Scan(const CorpusOptions& options, const std::vector<DataFile>& files) : options_(options), files_(files) {
    for (const auto& file : files) total_ += file.bytes;
  }
  /// Writes the whole to `descriptor`; `where` stands in messages.
  Result<void> run(std::uint64_t key, int descriptor, const std::string& where) {
    IndexWriter writer(descriptor);
    for (std::uint32_t i = 0; i < files_.size(); ++i) {
      writer.begin_file(i);
      const bool by_part = !options_.index_folder.empty() && files_.size() > 1;
      if (auto added = by_part ? add_part(writer, i) : add_file(writer, i, counts_); !added) return added;
      writer.end_file(files_[i].bytes);
    }
    if (const int failure = writer.finish(key, counts_); failure != 0)
      return Error{"cannot write the document index to " + where + ": " + std::strerror(failure)};
    return {};
  }
  std::string first_broken;  ///< what was left out first in this scan

  /// The whole is in its place: the parts are not needed any more.
  void remove_parts() const {
    for (const auto& part : parts_) unlink(part.c_str());
  }

 private:
  Result<void> add_file(IndexWriter& writer, std::uint32_t i, ScanCounts& counts) {
    const DocumentSink sink = [&](std::uint64_t offset, std::uint64_t text) { writer.add(offset, text); };
    const auto found = scan_documents(files_[i], options_.format, {options_.allow_binary, options_.skip_broken, options_.record}, sink,
                                      [this](std::uint64_t bytes) { read(bytes); });
    if (!found) return found.error();
    counts.empty_documents += found->empty_documents;
    counts.blank_lines += found->blank_lines;
    counts.broken_records += found->broken_records;
    if (first_broken.empty()) first_broken = found->first_broken;
    return {};
  }
  Result<void> add_part(IndexWriter& writer, std::uint32_t i) {
    const std::uint64_t key = key_of(options_, {files_[i]});
    const std::string name = (std::filesystem::path(options_.index_folder) / ("file-" + std::to_string(key) + ".part")).string();
    parts_.push_back(name);
    Descriptor kept;
    kept.value = open(name.c_str(), O_RDONLY | O_CLOEXEC);
    auto part = kept.value < 0 ? nullptr : MappedIndex::map(kept.value, key);
    if (part != nullptr) {
      read(files_[i].bytes);
    } else {
      auto fresh = scan_part(i, key, name);
      if (!fresh) return fresh.error();
      part = std::move(*fresh);
    }
    for (std::size_t r = 0; r < part->runs.size(); ++r) {
      const std::uint64_t end = r + 1 < part->runs.size() ? part->runs[r + 1].first_document : part->header.documents;
      std::uint64_t offset = part->runs[r].offset;
      for (std::uint64_t d = part->runs[r].first_document; d < end; offset += part->entries[d++].stored) writer.add(offset, part->entries[d].text);
    }
    counts_.empty_documents += part->header.empty_documents;
    counts_.blank_lines += part->header.blank_lines;
    counts_.broken_records += part->header.broken_records;
    return {};
  }
  Result<std::unique_ptr<MappedIndex>> scan_part(std::uint32_t i, std::uint64_t key, const std::string& name) {
    Descriptor file;
    file.value = open_part(name);
    if (file.value < 0) return Error{"cannot create the document index " + name + ": " + std::strerror(errno)};
    IndexWriter writer(file.value);
    ScanCounts counts;
    writer.begin_file(0);
    if (auto added = add_file(writer, i, counts); !added) {
      unlink((name + ".new").c_str());
      return added.error();
    }
    writer.end_file(files_[i].bytes);
    const int failure = writer.finish(key, counts);
    auto part = failure == 0 ? MappedIndex::map(file.value, key) : nullptr;
    if (part == nullptr || std::rename((name + ".new").c_str(), name.c_str()) != 0) {
      const int code = failure != 0 ? failure : errno;
      unlink((name + ".new").c_str());
      return Error{"cannot write the document index " + name + ": " + std::strerror(code)};
    }
    return part;
  }
  void read(std::uint64_t bytes) {
    done_ += bytes;
    if (options_.progress && bytes > 0) options_.progress(done_, total_);
  }
  const CorpusOptions& options_;
  const std::vector<DataFile>& files_;
  ScanCounts counts_;
  std::uint64_t total_ = 0, done_ = 0;
  std::vector<std::string> parts_;
};

}  // namespace

MappedIndex::~MappedIndex() {
  if (memory_ != nullptr) munmap(memory_, bytes_);
}

std::unique_ptr<MappedIndex> MappedIndex::map(int descriptor, std::uint64_t key) {
  struct stat facts {};
  if (fstat(descriptor, &facts) != 0 || facts.st_size < static_cast<off_t>(sizeof(IndexHeader))) return nullptr;
  auto index = std::unique_ptr<MappedIndex>(new MappedIndex);
  index->bytes_ = static_cast<std::size_t>(facts.st_size);
  void* memory = mmap(nullptr, index->bytes_, PROT_READ, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) return nullptr;
  index->memory_ = memory;
  auto& header = index->header;
  std::memcpy(&header, memory, sizeof header);
  const std::size_t body = index->bytes_ - sizeof header;
  const IndexHeader ours;
  if (std::memcmp(header.magic, ours.magic, sizeof ours.magic) != 0 || header.key != key) return nullptr;
  if (header.documents > body / sizeof(IndexEntry) || header.runs > body / sizeof(IndexRun)) return nullptr;
  if (header.documents * sizeof(IndexEntry) + header.runs * sizeof(IndexRun) != body) return nullptr;
  const auto* bytes = static_cast<const char*>(memory) + sizeof header;
  if (XXH3_64bits(bytes, body) != header.hash) return nullptr;
  index->entries = {reinterpret_cast<const IndexEntry*>(bytes), header.documents};
  index->runs = {reinterpret_cast<const IndexRun*>(bytes + header.documents * sizeof(IndexEntry)), header.runs};
  return index;
}

Result<std::unique_ptr<MappedIndex>> index_documents(const CorpusOptions& options, const std::vector<DataFile>& files, bool& from_cache,
                                                     std::string& first_broken) {
  const std::uint64_t key = key_of(options, files);
  const bool kept = !options.index_folder.empty();
  const std::filesystem::path folder = kept ? std::filesystem::path(options.index_folder) : std::filesystem::temp_directory_path();
  const std::string name = (folder / ("documents-" + std::to_string(key) + ".index")).string();
  Descriptor file;
  if (kept) {
    std::error_code ignored;
    std::filesystem::create_directories(folder, ignored);
    file.value = open(name.c_str(), O_RDONLY | O_CLOEXEC);
    if (file.value >= 0) {
      if (auto index = MappedIndex::map(file.value, key)) {
        from_cache = true;
        return index;
      }
      close(file.value);
      file.value = -1;
    }
  }
  std::string writing = (folder / "documents-XXXXXX").string();
  file.value = mkostemp(writing.data(), O_CLOEXEC);
  if (file.value < 0) return Error{"cannot create the document index in " + folder.string() + ": " + std::strerror(errno)};
  Scan scan(options, files);
  auto scanned = scan.run(key, file.value, folder.string());
  first_broken = scan.first_broken;
  // Where folders cannot be locked several ranks may do this at once: each renames a whole file into place, the last one stays.
  if (!scanned || !kept || std::rename(writing.c_str(), name.c_str()) != 0)
    unlink(writing.c_str());
  else
    scan.remove_parts();
  if (!scanned) return scanned.error();
  auto index = MappedIndex::map(file.value, key);
  if (index == nullptr) return Error{"cannot map the document index that was written to " + folder.string() + ": " + std::strerror(errno)};
  return index;
}

}  // namespace troupe
