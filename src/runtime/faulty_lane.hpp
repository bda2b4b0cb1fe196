#pragma once
#include <memory>

#include "src/device/lane.hpp"
#include "src/faults/fault_plan.hpp"
#include "src/runtime/runtime.hpp"

namespace troupe {

/// A lane whose operations suffer what the plan decides, on the lane's own thread, right before their work: a delay or stall lengthens
/// the operation, fail makes its outcome `failed`, crash ends the process by SIGKILL, after the log's line. Operations whose failure
/// halts the lane are asked at the site `collective` too; `process` is asked once a step, as the first operation of `compute` begins.
/// halt() ends a wait that is under way, and the operation then goes on to its end. Each firing is a line in the log (a warning if more than
/// time is at stake) and a mark in the trace. Gives `below` itself back where the plan is null or has no rules: faults that are off cost nothing.
/// `runtime` outlives the lane; time is its clock's.
[[nodiscard]] std::shared_ptr<Lane> make_faulty_lane(std::shared_ptr<Lane> below, LaneKind kind, Rank rank, std::shared_ptr<FaultPlan> plan, Runtime& runtime);

}  // namespace troupe
