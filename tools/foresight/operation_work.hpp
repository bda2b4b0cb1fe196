#pragma once
#include <map>
#include <span>

#include "src/simulation/operation_costs.hpp"
#include "src/trace/overlap.hpp"

namespace troupe {

/// Seconds that operations of each kind take of a core, by a run's spans of all ranks on one clock: what they took, without what they lost to others on
/// shared cores. Of n operations that run at one time on a host that does the work of `capacity` cores, each is taken to go on
/// at min(1, capacity / n); 0: each rank has a device, on which compute and optimizer take turns. A collective runs from when its last rank has come; of its
/// ranks the shortest counts. Means over the steps and the units of a class. `costs` names the kinds.
[[nodiscard]] std::map<OperationCosts::Kind, double> work_by_kind(std::span<const TracedSpan> spans, const OperationCosts& costs, double capacity);

}  // namespace troupe
