#pragma once
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "src/runtime/plan.hpp"

namespace troupe {

class SimulatedLane;

/// The one total order of a device: an operation starts no earlier than those before it in the plan, whatever their lanes. Rule 5 of DESIGN §1.
class DeviceOrder {
 public:
  /// `plan_of` gives the plan of a step that has begun; `lanes` are those of the device (a loader's disk is not).
  DeviceOrder(std::function<const Plan&(Step)> plan_of, std::set<LaneKind> lanes, Step first = Step{1});
  void add(SimulatedLane& lane) { members_.push_back(&lane); }
  /// Is it this operation's turn?
  [[nodiscard]] bool turn(Step step, OperationIndex index);
  /// It has started: the next may.
  void started(Step step, OperationIndex index);

 private:
  void skip_foreign();

  std::function<const Plan&(Step)> plan_of_;
  std::set<LaneKind> lanes_;
  std::vector<SimulatedLane*> members_;
  Step step_;
  std::uint32_t next_ = 0;
};

}  // namespace troupe
