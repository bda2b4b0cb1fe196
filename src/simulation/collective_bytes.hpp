#pragma once
#include <vector>

#include "src/simulation/simulated_communicator.hpp"

namespace troupe {

/// What the collective does to memory, for all members at once; `calls[r]` is member r's, all of one kind and size. Sums in rank order.
void move_collective_bytes(const std::vector<const SimulatedGroup::Call*>& calls);

}  // namespace troupe
