#include "src/runtime/actor_row.hpp"

namespace troupe {

const char* actor_row(ActorKind kind) noexcept {
  switch (kind) {
    case ActorKind::coordinator: return "coordinator actor";
    case ActorKind::supervisor: return "supervisor actor";
    case ActorKind::data_loader: return "data_loader actor";
    case ActorKind::compute: return "compute actor";
    case ActorKind::sharding: return "sharding actor";
    case ActorKind::checkpoint: return "checkpoint actor";
    case ActorKind::metrics: return "metrics actor";
    case ActorKind::none: break;
  }
  return "process";
}

}  // namespace troupe
