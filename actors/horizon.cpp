#include "actors/horizon.hpp"

namespace troupe {

std::vector<StepGrant> HorizonBook::advance(Step slowest, bool saving, Step limit) {
  std::vector<StepGrant> grants;
  if (policy_.wait_for_saves && saving) return grants;
  if (pause_) limit = std::min(limit, *pause_);
  while (granted_ < limit && granted_ < policy_.last_step) {
    if (policy_.last_at && !stop_asked_) {  // steps that were granted before run again by what holds now
      const Step next = std::max(granted_.next(), furthest_);
      policy_.last_step = std::max(next, policy_.last_at(next));
    }
    if (granted_ >= grants_allowed(granted_, slowest, policy_.last_step, policy_.run_ahead)) break;
    ++granted_;
    grants.push_back(StepGrant{.step = granted_,
                               .kind = step_kind(saves(granted_), policy_.evaluation_due && policy_.evaluation_due(granted_)),
                               .last = granted_ == policy_.last_step,
                               .learning_rate = policy_.learning_rate(granted_)});
    if (policy_.wait_for_saves && saves(granted_)) break;
  }
  return grants;
}

Step HorizonBook::stop() {
  stop_asked_ = true;
  const Step at = std::max(granted_.next(), furthest_);  // steps that were told already run again first
  if (stopping_ || at > policy_.last_step) return policy_.last_step;
  stopping_ = at < policy_.last_step;  // the run's own last step keeps its own rule
  policy_.last_step = at;
  return policy_.last_step;
}

}  // namespace troupe
