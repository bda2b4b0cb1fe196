#pragma once
#include <span>
#include <string>
#include <utility>

#include "messages/actor_kind.hpp"
#include "src/base/ids.hpp"

namespace troupe {

/// What profiling hangs on in a rank: told by its Metrics actor, in order, as each step's report comes. None of it may block: writers have a
/// thread of their own.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  virtual void step_ended(Step step) = 0;
  /// Whether a picture of the memory of this step is wanted; then `holders` follows.
  [[nodiscard]] virtual bool wants_holders(Step step) = 0;
  /// What each actor of the rank answers to Inspect: its place in the plan, the slots of its edge and for how long they are out.
  virtual void holders(Step step, std::span<const std::pair<ActorKind, std::string>> answers) = 0;
};

}  // namespace troupe
