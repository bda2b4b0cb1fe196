#pragma once
#include <span>
#include <string>
#include <vector>

#include "messages/actor_kind.hpp"
#include "src/device/lane.hpp"

namespace troupe {

/// What an actor last answered to Inspect.
struct WaitingActor {
  ActorKind actor{};
  std::string waiting;  ///< empty: for nothing
};

/// The oldest pending operation of a rank, in words, with its age.
struct OldestPending {
  std::string text;  ///< "comm: gather L2; compute waits for weights of L2, step 3"; empty when nothing is pending
  Nanos age{0};
};

/// A lane and what it is at.
struct LaneState {
  LaneKind lane{};
  LaneProgress progress;
};

/// Names the operation that has been pending for longest among the lanes, then who waits for what: what a heartbeat carries and the
/// watchdog prints. Pure.
[[nodiscard]] OldestPending oldest_pending(std::span<const LaneState> lanes, std::span<const WaitingActor> actors, Nanos now);

}  // namespace troupe
