#include "src/runtime/join_digests.hpp"

#include <numeric>

namespace troupe {

std::uint64_t join_digests(std::span<const std::uint64_t> digests) noexcept { return std::accumulate(digests.begin(), digests.end(), std::uint64_t{0}); }

}  // namespace troupe
