#include "src/simulation/device_order.hpp"

#include "src/simulation/simulated_lane.hpp"

namespace troupe {

DeviceOrder::DeviceOrder(std::function<const Plan&(Step)> plan_of, std::set<LaneKind> lanes, Step first)
    : plan_of_(std::move(plan_of)), lanes_(std::move(lanes)), step_(first) {}

/// `next_` may stand behind the last operation of a step; which step comes then is known only when one of its operations asks.
void DeviceOrder::skip_foreign() {
  const Plan& plan = plan_of_(step_);
  while (next_ < plan.operations.size() && !lanes_.contains(plan.operations[next_].lane)) ++next_;
}

bool DeviceOrder::turn(Step step, OperationIndex index) {
  skip_foreign();
  if (step == step_.next() && next_ == plan_of_(step_).operations.size()) {
    step_ = step;
    next_ = 0;
    skip_foreign();
  }
  return step == step_ && index.value() == next_;
}

void DeviceOrder::started(Step, OperationIndex) {
  ++next_;
  for (SimulatedLane* lane : members_) lane->poke();
}

}  // namespace troupe
