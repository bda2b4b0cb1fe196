#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <string>

#include "src/device/device.hpp"

namespace troupe {
namespace {

/// std::bad_alloc that says how much was asked for.
class HostMemoryError final : public std::bad_alloc {
 public:
  explicit HostMemoryError(std::size_t bytes) : text_("host memory: " + std::to_string(bytes) + " bytes asked for: " + std::strerror(errno)) {}
  [[nodiscard]] const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

/// Anonymous pages: zero-filled and aligned as the kernel gives them.
class HostBuffer final : public Buffer {
 public:
  explicit HostBuffer(std::size_t bytes) : size_(bytes) {
    if (bytes == 0) return;
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) throw HostMemoryError(bytes);
  }
  ~HostBuffer() override {
    if (size_ != 0) munmap(data_, size_);
  }
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;
  [[nodiscard]] std::span<std::byte> bytes() const noexcept override { return {static_cast<std::byte*>(data_), size_}; }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace

std::unique_ptr<Buffer> allocate_host(std::size_t bytes) { return std::make_unique<HostBuffer>(bytes); }

}  // namespace troupe
