#pragma once
#include "messages/letter.hpp"

/// Every kind of letter, in the order of letters.capnp: X(type, name of the union's member in upper case).
#define TROUPE_LETTER_KINDS(X)           \
  X(StepBegin, STEP_BEGIN)               \
  X(BatchReady, BATCH_READY)             \
  X(WeightsGathered, WEIGHTS_GATHERED)   \
  X(GradientReady, GRADIENT_READY)       \
  X(GradientReduced, GRADIENT_REDUCED)   \
  X(MicroBatchDone, MICRO_BATCH_DONE)    \
  X(StepReport, STEP_REPORT)             \
  X(SlotHome, SLOT_HOME)                 \
  X(LaneDone, LANE_DONE)                 \
  X(Join, JOIN)                          \
  X(EpochBegin, EPOCH_BEGIN)             \
  X(EpochReady, EPOCH_READY)             \
  X(Horizon, HORIZON)                    \
  X(Heartbeat, HEARTBEAT)                \
  X(FaultReport, FAULT_REPORT)           \
  X(EpochEnd, EPOCH_END)                 \
  X(Drain, DRAIN)                        \
  X(Stopped, STOPPED)                    \
  X(SnapshotTaken, SNAPSHOT_TAKEN)       \
  X(ShardSaved, SHARD_SAVED)             \
  X(CheckpointSealed, CHECKPOINT_SEALED) \
  X(Inspect, INSPECT)                    \
  X(Inspection, INSPECTION)              \
  X(Tick, TICK)                          \
  X(StopRequested, STOP_REQUESTED)       \
  X(CollectivePart, COLLECTIVE_PART)     \
  X(SnapshotKept, SNAPSHOT_KEPT)         \
  X(FaultFired, FAULT_FIRED)             \
  X(FaultRules, FAULT_RULES)             \
  X(ChangeRequested, CHANGE_REQUESTED)

namespace troupe {

/// Which letter it is.
using LetterKind = schema::Envelope::Body::Which;

/// "BatchReady"; "unknown" for a kind that a newer peer may know. Static storage.
[[nodiscard]] const char* name_of(LetterKind kind) noexcept;

#define TROUPE_LETTER_BODY(Type, UPPER)                                                                               \
  template <>                                                                                                         \
  struct Body<schema::Type> {                                                                                         \
    static constexpr LetterKind kind = LetterKind::UPPER;                                                             \
    static schema::Type::Reader get(schema::Envelope::Reader envelope) { return envelope.getBody().get##Type(); }     \
    static schema::Type::Builder init(schema::Envelope::Builder envelope) { return envelope.getBody().init##Type(); } \
  };
TROUPE_LETTER_KINDS(TROUPE_LETTER_BODY)
#undef TROUPE_LETTER_BODY

/// Calls `f(Letter<T>)` with the parcel's kind as T: the program's only switch over kinds. False, without a call, for an unknown kind:
/// the caller drops the letter and counts it. `f` is a generic lambda or an overload set.
template <class F>
bool dispatch(std::shared_ptr<const Parcel> parcel, F&& f) {
  const LetterKind kind = parcel->envelope().getBody().which();
  switch (kind) {
#define TROUPE_LETTER_CASE(Type, UPPER) \
  case LetterKind::UPPER: f(Letter<schema::Type>{std::move(parcel)}); return true;
    TROUPE_LETTER_KINDS(TROUPE_LETTER_CASE)
#undef TROUPE_LETTER_CASE
    case LetterKind::RETIRED14: break;
  }
  return false;
}

}  // namespace troupe
