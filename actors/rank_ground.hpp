#pragma once
#include "actors/rank_actors.hpp"

namespace troupe {

/// What the five actors of a rank stand on together: parts and slots' memory. Shared by them, so that it goes when the last is gone.
struct RankGround {
  RankGround(RankParts rank_parts, const EdgeLayout& layout) : memory(layout, rank_parts.device), parts(std::move(rank_parts)) {}
  EdgeMemory memory;  // goes last: lanes, which end with `parts`, use it
  RankParts parts;
  [[nodiscard]] Lane& lane(LaneKind kind) const { return *parts.lanes[static_cast<std::size_t>(kind)]; }
};

}  // namespace troupe
