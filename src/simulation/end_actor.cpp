#include "src/simulation/end_actor.hpp"

#include <caf/send.hpp>

namespace troupe {

void end_actor(Directory& directory, const ActorAddress& address, bool at_once) {
  if (const auto actor = directory.find(address)) caf::anon_send_exit(actor, at_once ? caf::exit_reason::kill : caf::exit_reason::user_shutdown);
  if (at_once) directory.remove(address);
}

}  // namespace troupe
