#pragma once
#include "messages/actor_kind.hpp"

namespace troupe {

/// The row of an actor in the timeline; a lane's row bears the lane's name alone ("compute"). Static storage.
[[nodiscard]] const char* actor_row(ActorKind kind) noexcept;

}  // namespace troupe
