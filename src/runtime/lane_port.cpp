#include "src/runtime/lane_port.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/runtime/send.hpp"

namespace troupe {

LanePort::LanePort(Runtime& runtime, ActorAddress owner, EpochId epoch, Lane& lane, LaneKind kind)
    : runtime_(runtime), owner_(owner), epoch_(epoch), lane_(lane), kind_(kind) {}

namespace {

/// Whether all that it makes true is of use to this rank's device lanes alone: then a device may say so when it has issued it. A batch's
/// slot goes back to the disk lane, which is a thread of the host.
bool stays_on_device(const PlanCursor::Next& next) {
  const PlannedOperation& operation = *next.operation;
  const auto of_batches = [&](OperationIndex producer) { return (*next.plan)[producer].takes == EdgeKind::batches; };
  return operation.lane != LaneKind::disk && operation.lane != LaneKind::copy && operation.lane != LaneKind::storage &&
         std::ranges::none_of(operation.last_reads, of_batches);
}

}  // namespace

void LanePort::post(const PlanCursor::Next& next, Work work) {
  ++posted_;
  LaneOperation operation;
  operation.name = next.operation->name();
  operation.where = next.where(epoch_);
  operation.index = next.index;
  operation.cost = next.operation->cost;
  for (const OperationIndex input : next.operation->after) operation.after.push_back({next.step, input});
  if (next.before != nullptr)
    for (const OperationIndex input : *next.before) operation.after.push_back({Step{next.step.value() - 1}, input});
  operation.stays_on_device = !work.read_by_host && stays_on_device(next);
  operation.failure_halts_lane = next.operation->communicator != CommunicatorKind::none;
  operation.work = std::move(work.run);
  operation.leases = std::move(work.leases);
  operation.accesses = std::move(work.accesses);
  operation.done = [runtime = &runtime_, heading = Heading{owner_, owner_, operation.where, next.index, Nanos{0}, 0}, kind = kind_,
                    letters = std::move(work.letters)](const Outcome& outcome) {
    if (outcome.ok() && letters) letters();
    send<schema::LaneDone>(*runtime, heading, [&](auto body) {
      body.setOutcome(static_cast<std::uint8_t>(outcome.kind));
      if (!outcome.cause.empty()) body.setCause(outcome.cause);
      body.setLane(static_cast<std::uint8_t>(kind));
    });
  };
  lane_.post(std::move(operation));
}

std::string LanePort::describe() const {
  const LaneProgress progress = lane_.progress();
  if (progress.oldest_pending.empty()) return {};
  const Nanos age = runtime_.clock.now() - progress.pending_since;
  return fmt::format("{}: {} in flight, {} for {:.1f} ms", name_of(kind_), progress.posted - progress.completed, progress.oldest_pending,
                     std::chrono::duration<double, std::milli>(age).count());
}

}  // namespace troupe
