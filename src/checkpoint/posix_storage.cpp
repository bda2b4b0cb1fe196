#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "src/checkpoint/storage.hpp"

namespace troupe {
namespace {

namespace fs = std::filesystem;

Error failed(const std::string& what, const fs::path& path, int code) { return Error{"cannot " + what + " " + path.string() + ": " + std::strerror(code)}; }

class PosixWriter final : public StorageWriter {
 public:
  PosixWriter(int descriptor, fs::path path) : descriptor_(descriptor), path_(std::move(path)) {}
  ~PosixWriter() override { close(descriptor_); }
  PosixWriter(const PosixWriter&) = delete;
  PosixWriter& operator=(const PosixWriter&) = delete;
  Result<void> write(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return failed("write", path_, written < 0 ? errno : EIO);
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
    return {};
  }
  Result<void> sync() override {
    if (fsync(descriptor_) != 0) return failed("sync", path_, errno);
    return {};
  }

 private:
  int descriptor_;
  fs::path path_;
};

class PosixReader final : public StorageReader {
 public:
  PosixReader(int descriptor, std::uint64_t size, fs::path path) : descriptor_(descriptor), size_(size), path_(std::move(path)) {}
  ~PosixReader() override { close(descriptor_); }
  PosixReader(const PosixReader&) = delete;
  PosixReader& operator=(const PosixReader&) = delete;
  [[nodiscard]] std::uint64_t size() const noexcept override { return size_; }
  Result<void> read_at(std::uint64_t offset, std::span<std::byte> out) override {
    while (!out.empty()) {
      const ssize_t got = pread(descriptor_, out.data(), out.size(), static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return failed("read", path_, errno);
      if (got == 0) return Error{path_.string() + " ends at byte " + std::to_string(offset) + ", " + std::to_string(out.size()) + " more were expected"};
      offset += static_cast<std::uint64_t>(got);
      out = out.subspan(static_cast<std::size_t>(got));
    }
    return {};
  }

 private:
  int descriptor_;
  std::uint64_t size_;
  fs::path path_;
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
    return std::unique_ptr<StorageReader>(std::make_unique<PosixReader>(descriptor, static_cast<std::uint64_t>(facts.st_size), file));
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
