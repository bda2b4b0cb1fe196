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
  std::string text = std::to_string(static_cast<int>(options.format)) + (options.allow_binary ? "b" : "t");
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

Result<void> scan_all(const CorpusOptions& options, const std::vector<DataFile>& files, std::uint64_t key, int descriptor, const std::string& where) {
  IndexWriter writer(descriptor);
  ScanCounts counts;
  std::uint64_t total = 0, done = 0;
  for (const auto& file : files) total += file.bytes;
  const auto read = [&](std::uint64_t bytes) {
    done += bytes;
    if (options.progress) options.progress(done, total);
  };
  for (std::size_t i = 0; i < files.size(); ++i) {
    writer.begin_file(static_cast<std::uint32_t>(i));
    const DocumentSink sink = [&](std::uint64_t offset, std::uint64_t text) { writer.add(offset, text); };
    const auto found = scan_documents(files[i], options.format, options.allow_binary, sink, read);
    if (!found) return found.error();
    writer.end_file(files[i].bytes);
    counts.empty_documents += found->empty_documents;
    counts.blank_lines += found->blank_lines;
  }
  if (const int failure = writer.finish(key, counts); failure != 0) return Error{"cannot write the document index to " + where + ": " + std::strerror(failure)};
  return {};
}

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

Result<std::unique_ptr<MappedIndex>> index_documents(const CorpusOptions& options, const std::vector<DataFile>& files, bool& from_cache) {
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
  auto scanned = scan_all(options, files, key, file.value, folder.string());
  // Several ranks may do this at once: each renames a whole file into place, the last one stays.
  if (!scanned || !kept || std::rename(writing.c_str(), name.c_str()) != 0) unlink(writing.c_str());
  if (!scanned) return scanned.error();
  auto index = MappedIndex::map(file.value, key);
  if (index == nullptr) return Error{"cannot map the document index that was written to " + folder.string() + ": " + std::strerror(errno)};
  return index;
}

}  // namespace troupe
