#include "src/runtime/spawned_actor.hpp"

#include <caf/send.hpp>

namespace troupe {

void SpawnedActor::end() {
  if (actor_) caf::anon_send_exit(actor_, caf::exit_reason::user_shutdown);
  actor_ = nullptr;
}

}  // namespace troupe
