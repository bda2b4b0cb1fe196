#pragma once
#include "src/runtime/directory.hpp"

namespace troupe {

/// Tells the actor at the address, if there is one, to end: after the letters that it has, or `at_once` and out of the directory, as if its process
/// had died.
void end_actor(Directory& directory, const ActorAddress& address, bool at_once);

}  // namespace troupe
