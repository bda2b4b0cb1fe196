#pragma once
#include <cstdint>
#include <span>

namespace troupe {

/// One digest for several, which knows their order: of a rank's micro-batches in order, of the ranks in rank order. A single one stands
/// for itself, none is 0, several are the XXH3-64 of them one behind the other. Pure.
[[nodiscard]] std::uint64_t join_digests(std::span<const std::uint64_t> digests) noexcept;

}  // namespace troupe
