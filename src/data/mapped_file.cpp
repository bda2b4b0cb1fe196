#include "src/data/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
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
  return std::unique_ptr<MappedFile>(new MappedFile({path, size, facts.st_mtim.tv_sec * 1'000'000'000 + facts.st_mtim.tv_nsec, path}, memory));
}

MappedFile::~MappedFile() {
  if (memory_ != nullptr) munmap(memory_, file_.bytes);
}

}  // namespace troupe
