#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include "src/checkpoint/storage.hpp"

namespace troupe {
namespace {

namespace fs = std::filesystem;

Error failed(const std::string& what, const fs::path& path, int code) { return Error{"cannot " + what + " " + path.string() + ": " + std::strerror(code)}; }

constexpr std::size_t page = 4096, direct_from = std::size_t{1} << 20U, bounce_bytes = std::size_t{8} << 20U;

bool at_page(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory) % page == 0; }

struct FreeMemory {
  void operator()(std::byte* memory) const noexcept { std::free(memory); }
};

/// Large writes go past the system's cache where the file system can do that: a checkpoint would only push other things out of it.
class PosixWriter final : public StorageWriter {
 public:
  PosixWriter(int descriptor, fs::path path) : descriptor_(descriptor), path_(std::move(path)) {}
  ~PosixWriter() override { close(descriptor_); }
  PosixWriter(const PosixWriter&) = delete;
  PosixWriter& operator=(const PosixWriter&) = delete;
  Result<void> write(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const bool direct = bytes.size() >= direct_from && offset_ % page == 0 && set_direct(true);
      if (!direct) set_direct(false);
      const auto piece = direct ? bytes.first(std::min(bytes.size(), bounce_bytes) / page * page) : bytes;
      const auto done = put(direct ? aligned(piece) : piece, offset_);
      if (!done) return done.error();
      offset_ += *done;
      bytes = bytes.subspan(*done);
    }
    return {};
  }
  Result<void> rewrite_start(std::span<const std::byte> bytes) override {
    set_direct(false);
    for (std::uint64_t at = 0; at < bytes.size();) {
      const auto done = put(bytes.subspan(at), at);
      if (!done) return done.error();
      at += *done;
    }
    return {};
  }
  Result<void> sync() override {
    if (fsync(descriptor_) != 0) return failed("sync", path_, errno);
    return {};
  }

 private:
  /// Bytes written, at least one.
  Result<std::size_t> put(std::span<const std::byte> bytes, std::uint64_t offset) {
    while (true) {
      const ssize_t written = pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (written > 0) return static_cast<std::size_t>(written);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0 && errno == EINVAL && direct_) {  // this file system takes other sizes, or none
        set_direct(false);
        never_direct_ = true;
        continue;
      }
      return failed("write", path_, written < 0 ? errno : EIO);
    }
  }
  std::span<const std::byte> aligned(std::span<const std::byte> bytes) {
    if (at_page(bytes.data())) return bytes;
    if (!bounce_) bounce_.reset(static_cast<std::byte*>(std::aligned_alloc(page, bounce_bytes)));
    if (!bounce_) throw std::bad_alloc();
    std::memcpy(bounce_.get(), bytes.data(), bytes.size());
    return {bounce_.get(), bytes.size()};
  }
  bool set_direct(bool wanted) {
    if (wanted == direct_ || never_direct_) return direct_;
    const int flags = fcntl(descriptor_, F_GETFL);
    if (flags >= 0 && fcntl(descriptor_, F_SETFL, wanted ? flags | O_DIRECT : flags & ~O_DIRECT) == 0)
      direct_ = wanted;
    else
      never_direct_ = true;
    return direct_;
  }
  int descriptor_;
  fs::path path_;
  std::uint64_t offset_ = 0;
  bool direct_ = false, never_direct_ = false;
  std::unique_ptr<std::byte, FreeMemory> bounce_;
};

/// Takes from the system's cache what lies there; large reads of the rest go past it.
class PosixReader final : public StorageReader {
 public:
  PosixReader(int descriptor, int direct, std::uint64_t size, fs::path path) : descriptor_(descriptor), direct_(direct), size_(size), path_(std::move(path)) {}
  ~PosixReader() override {
    if (map_ != nullptr && map_ != MAP_FAILED) munmap(map_, size_);
    close(descriptor_);
    if (direct_ >= 0) close(direct_);
  }
  PosixReader(const PosixReader&) = delete;
  PosixReader& operator=(const PosixReader&) = delete;
  [[nodiscard]] std::uint64_t size() const noexcept override { return size_; }
  Result<void> read_at(std::uint64_t offset, std::span<std::byte> out) override {
    const auto advance = [&](ssize_t got) {
      offset += static_cast<std::uint64_t>(got);
      out = out.subspan(static_cast<std::size_t>(got));
    };
    if (direct_ >= 0 && out.size() >= direct_from && offset % page == 0 && at_page(out.data()) && !cached(offset, out.size())) {
      while (out.size() >= page && offset % page == 0) {
        const ssize_t got = pread(direct_, out.data(), out.size() / page * page, static_cast<off_t>(offset));
        if (got <= 0) break;  // the other descriptor finds out why
        advance(got);
      }
    }
    while (!out.empty()) {
      const ssize_t got = pread(descriptor_, out.data(), out.size(), static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return failed("read", path_, errno);
      if (got == 0) return Error{path_.string() + " ends at byte " + std::to_string(offset) + ", " + std::to_string(out.size()) + " more were expected"};
      advance(got);
    }
    return {};
  }

 private:
  /// All of these bytes need no disk. Asking by preadv2(RWF_NOWAIT) would start a read-ahead that gets in the way.
  [[nodiscard]] bool cached(std::uint64_t offset, std::size_t bytes) {
    if (map_ == nullptr) map_ = mmap(nullptr, size_, PROT_READ, MAP_SHARED, descriptor_, 0);
    if (map_ == MAP_FAILED) return false;
    std::vector<unsigned char> pages((bytes + page - 1) / page);
    if (mincore(static_cast<std::byte*>(map_) + offset, bytes, pages.data()) != 0) return false;
    return std::ranges::all_of(pages, [](unsigned char state) { return (state & 1U) != 0; });
  }
  int descriptor_, direct_;  ///< direct_: -1 where there is none
  std::uint64_t size_;
  fs::path path_;
  void* map_ = nullptr;
};

class PosixStorage final : public Storage {
 public:
  Result<void> make_folders(const fs::path& folder) override {
    std::error_code code;
    fs::create_directories(folder, code);
    if (code && !fs::is_directory(folder)) return failed("create the folder", folder, code.value());
    return {};
  }
  Result<std::unique_ptr<StorageWriter>> create(const fs::path& file) override {
    const int descriptor = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (descriptor < 0) return failed("create", file, errno);
    return std::unique_ptr<StorageWriter>(std::make_unique<PosixWriter>(descriptor, file));
  }
  Result<std::unique_ptr<StorageReader>> open(const fs::path& file) override {
    const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return failed("open", file, errno);
    struct stat facts {};
    if (fstat(descriptor, &facts) != 0 || !S_ISREG(facts.st_mode)) {
      close(descriptor);
      return Error{"cannot read " + file.string() + ": not a regular file"};
    }
    const int direct = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);  // -1: this file system cannot
    return std::unique_ptr<StorageReader>(std::make_unique<PosixReader>(descriptor, direct, static_cast<std::uint64_t>(facts.st_size), file));
  }
  Result<void> sync_folder(const fs::path& folder) override {
    const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return failed("open the folder", folder, errno);
    const int code = fsync(descriptor) == 0 ? 0 : errno;
    close(descriptor);
    if (code != 0) return failed("sync the folder", folder, code);
    return {};
  }
  Result<void> rename(const fs::path& from, const fs::path& to) override {
    if (std::rename(from.c_str(), to.c_str()) != 0) return failed("rename " + from.string() + " to", to, errno);
    return {};
  }
  Result<void> remove(const fs::path& path) override {
    std::error_code code;
    fs::remove_all(path, code);
    if (code) return failed("remove", path, code.value());
    return {};
  }
  Result<std::vector<StorageEntry>> list(const fs::path& folder) override {
    std::error_code code;
    std::vector<StorageEntry> entries;
    if (!fs::exists(folder, code)) return entries;
    for (fs::directory_iterator it(folder, code), end; !code && it != end; it.increment(code)) {
      std::error_code ignored;
      entries.push_back({it->path().filename().string(), it->is_directory(ignored)});
    }
    if (code) return failed("list the folder", folder, code.value());
    return entries;
  }
  bool exists(const fs::path& path) override {
    std::error_code ignored;
    return fs::exists(path, ignored);
  }
  std::uint64_t free_bytes(const fs::path& path) override {
    std::error_code code;
    const auto space = fs::space(path, code);
    return code ? 0 : space.available;
  }
};

}  // namespace

std::unique_ptr<Storage> make_posix_storage() { return std::make_unique<PosixStorage>(); }

}  // namespace troupe
