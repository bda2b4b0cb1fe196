#include "src/data/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace troupe {

Result<std::unique_ptr<MappedFile>> MappedFile::open(const std::string& path) {
  const auto wrong = [&](int code) { return Error{"cannot read " + path + ": " + std::strerror(code)}; };
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return wrong(errno);
  struct stat facts {};
  const int checked = fstat(descriptor, &facts);
  const int code = checked != 0 ? errno : S_ISDIR(facts.st_mode) ? EISDIR : 0;
  const auto size = static_cast<std::size_t>(facts.st_size);
  void* memory = code == 0 && size > 0 ? mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0) : nullptr;
  const int failed = memory == MAP_FAILED ? errno : code;
  close(descriptor);
  if (failed != 0) return wrong(failed);
  return std::unique_ptr<MappedFile>(new MappedFile({path, size, facts.st_mtim.tv_sec * 1'000'000'000 + facts.st_mtim.tv_nsec, path}, facts.st_ino, memory));
}

/// The kernel copies, and tells of a page that is not there; of the last page that is, what lay behind the end is zeros, so the size is looked at too.
/// Where the kernel is forbidden to copy (a seccomp filter) what is left is to look at the size before.
bool MappedFile::copy(std::uint64_t offset, std::span<std::byte> out) const noexcept {
  const pid_t self = getpid();
  const auto* from = static_cast<const std::byte*>(memory_) + offset;
  while (!out.empty()) {
    const iovec to{out.data(), out.size()}, of{const_cast<std::byte*>(from), out.size()};
    const ssize_t got = process_vm_readv(self, &to, 1, &of, 1, 0);
    if (got < 0 && (errno == EPERM || errno == ENOSYS)) return copy_unguarded(from, out);
    if (got <= 0) return false;
    from += got;
    out = out.subspan(static_cast<std::size_t>(got));
  }
  return is_whole();
}

bool MappedFile::is_whole() const noexcept {
  struct stat now {};
  const bool named = stat(file_.path.c_str(), &now) == 0 && now.st_ino == inode_;  // a file without a name is not cut off any more
  return !named || static_cast<std::uint64_t>(now.st_size) >= file_.bytes;
}

bool MappedFile::copy_unguarded(const std::byte* from, std::span<std::byte> out) const noexcept {
  if (!is_whole()) return false;
  std::memcpy(out.data(), from, out.size());
  return true;
}

MappedFile::~MappedFile() {
  if (memory_ != nullptr) munmap(memory_, file_.bytes);
}

}  // namespace troupe
