#include "messages/edge_kind.hpp"
#include "messages/kinds.hpp"

namespace troupe {

const char* name_of(LetterKind kind) noexcept {
  switch (kind) {
#define TROUPE_LETTER_NAME(Type, UPPER) \
  case LetterKind::UPPER: return #Type;
    TROUPE_LETTER_KINDS(TROUPE_LETTER_NAME)
#undef TROUPE_LETTER_NAME
    case LetterKind::RETIRED14: break;
  }
  return "unknown";
}

const char* name_of(ActorKind kind) noexcept {
  switch (kind) {
    case ActorKind::none: return "none";
    case ActorKind::coordinator: return "coordinator";
    case ActorKind::supervisor: return "supervisor";
    case ActorKind::data_loader: return "data_loader";
    case ActorKind::compute: return "compute";
    case ActorKind::sharding: return "sharding";
    case ActorKind::checkpoint: return "checkpoint";
    case ActorKind::metrics: return "metrics";
  }
  return "unknown";
}

const char* name_of(EdgeKind edge) noexcept {
  switch (edge) {
    case EdgeKind::batches: return "batches";
    case EdgeKind::weights: return "weights";
    case EdgeKind::gradients: return "gradients";
    case EdgeKind::snapshots: return "snapshots";
  }
  return "unknown";
}

}  // namespace troupe
