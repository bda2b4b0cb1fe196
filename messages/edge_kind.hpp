#pragma once
#include <cstdint>

namespace troupe {

/// The named producer → consumer connections that have slots. Values travel in letters: never renumber.
enum class EdgeKind : std::uint16_t { batches = 0, weights = 1, gradients = 2, snapshots = 3 };
inline constexpr std::size_t edge_count = 4;
[[nodiscard]] const char* name_of(EdgeKind edge) noexcept;  ///< static storage

}  // namespace troupe
