#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace troupe {

/// Follows every pointer of a Cap'n Proto segment, of fields that nobody here knows too, from the root at word 0. What is wrong, or nothing if
/// they form a tree of structs and lists inside the segment. Pointers to other segments and capabilities are refused, even
/// where they lead back here: Parcel's reader, which has no bounds, takes them for something else. Throws nothing.
[[nodiscard]] std::optional<std::string> segment_problem(std::span<const std::uint64_t> segment);

}  // namespace troupe
