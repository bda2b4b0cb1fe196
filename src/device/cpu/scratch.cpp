#include "src/device/cpu/scratch.hpp"

namespace troupe::cpu {

std::span<std::byte> Scratch::bytes(Use use, std::size_t size) {
  std::unique_ptr<Buffer>& buffer = buffers_[static_cast<std::size_t>(use)];
  if (!buffer || buffer->bytes().size() < size) {
    buffer.reset();  // before the new one: both need not fit
    buffer = allocate_host(size);
  }
  return buffer->bytes();
}

Scratch& ScratchOfThreads::mine() {
  const std::lock_guard lock(mutex_);
  return scratch_[std::this_thread::get_id()];
}

}  // namespace troupe::cpu
