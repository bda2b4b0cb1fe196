#include "src/runtime/watchdog.hpp"

namespace troupe {

OldestPending oldest_pending(std::span<const LaneState> lanes, std::span<const WaitingActor> actors, Nanos now) {
  const LaneState* oldest = nullptr;
  for (const LaneState& lane : lanes) {
    if (lane.progress.oldest_pending.empty()) continue;
    if (!oldest || lane.progress.pending_since < oldest->progress.pending_since) oldest = &lane;
  }
  OldestPending result;
  if (oldest) {
    result.text = std::string(name_of(oldest->lane)) + ": " + oldest->progress.oldest_pending;
    result.age = now - oldest->progress.pending_since;
  }
  for (const WaitingActor& actor : actors) {
    if (actor.waiting.empty()) continue;
    if (!result.text.empty()) result.text += "; ";
    result.text += std::string(name_of(actor.actor)) + " waits for " + actor.waiting;
  }
  return result;
}

}  // namespace troupe
