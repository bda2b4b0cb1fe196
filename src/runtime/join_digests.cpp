#include "src/runtime/join_digests.hpp"

#include <xxhash.h>

namespace troupe {

std::uint64_t join_digests(std::span<const std::uint64_t> digests) noexcept {
  if (digests.empty()) return 0;
  return digests.size() == 1 ? digests.front() : XXH3_64bits(digests.data(), digests.size_bytes());
}

}  // namespace troupe
