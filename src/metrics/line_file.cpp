#include "src/metrics/line_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace troupe {
namespace {

constexpr std::size_t most_waiting = std::size_t{16} << 20U;
constexpr std::size_t piece_bytes = std::size_t{64} << 10U;

Error failed(const std::string& what, const std::string& path, int code) { return Error{"cannot " + what + " " + path + ": " + std::strerror(code)}; }

/// Bytes of the whole lines up to the first that is refused.
Result<std::uint64_t> kept_bytes(int descriptor, const std::string& path, const std::function<bool(std::string_view)>& keep) {
  std::string line, piece(piece_bytes, '\0');
  std::uint64_t offset = 0, kept = 0;
  for (;;) {
    const ssize_t got = pread(descriptor, piece.data(), piece.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed("read", path, errno);
    if (got == 0) return kept;  // what is left in `line` has no line feed: torn
    std::string_view rest(piece.data(), static_cast<std::size_t>(got));
    offset += rest.size();
    for (auto end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
      line.append(rest.substr(0, end));
      if (keep && !keep(line)) return kept;
      kept += line.size() + 1;
      line.clear();
      rest.remove_prefix(end + 1);
    }
    line.append(rest);
  }
}

}  // namespace

Result<LineFile> LineFile::open(const std::filesystem::path& path, const std::function<bool(std::string_view)>& keep) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (descriptor < 0) return failed("open", path.string(), errno);
  LineFile file(descriptor, path.string(), 0);
  const auto kept = kept_bytes(descriptor, file.path_, keep);
  if (!kept) return kept.error();
  struct stat facts {};
  if (fstat(descriptor, &facts) != 0) return failed("examine", file.path_, errno);
  file.size_ = *kept;
  if (static_cast<std::uint64_t>(facts.st_size) != *kept && ftruncate(descriptor, static_cast<off_t>(*kept)) != 0) return failed("shorten", file.path_, errno);
  return file;
}

LineFile::LineFile(LineFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), path_(std::move(other.path_)), size_(other.size_), waiting_(std::move(other.waiting_)) {}

LineFile& LineFile::operator=(LineFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(path_, other.path_);
  std::swap(size_, other.size_);
  std::swap(waiting_, other.waiting_);
  return *this;
}

LineFile::~LineFile() {
  if (descriptor_ < 0) return;
  (void)flush();
  close(descriptor_);
}

Result<void> LineFile::append(std::string_view line) {
  if (waiting_.size() + line.size() < most_waiting) waiting_.append(line) += '\n';
  return flush();
}

Result<void> LineFile::flush() {
  std::string_view rest = waiting_;
  while (!rest.empty()) {
    const ssize_t written = ::write(descriptor_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const int code = written < 0 ? errno : EIO;
      if (ftruncate(descriptor_, static_cast<off_t>(size_)) != 0) return failed("write and shorten", path_, errno);
      return Error{"cannot write " + path_ + ": " + std::strerror(code) + "; " + std::to_string(std::count(waiting_.begin(), waiting_.end(), '\n')) +
                   " lines wait in memory"};
    }
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  size_ += waiting_.size();
  waiting_.clear();
  return {};
}

Result<void> LineFile::sync() {
  if (auto flushed = flush(); !flushed) return flushed;
  if (fdatasync(descriptor_) != 0) return failed("sync", path_, errno);
  return {};
}

}  // namespace troupe
