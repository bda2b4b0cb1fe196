#include "actors/rank_actors.hpp"

#include <algorithm>
#include <caf/actor_system.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>
#include <stdexcept>

#include "actors/checkpoint.hpp"
#include "actors/compute.hpp"
#include "actors/data_loader.hpp"
#include "actors/metrics.hpp"
#include "actors/rank_ground.hpp"
#include "actors/sharding.hpp"
#include "src/runtime/directory.hpp"
#include "src/runtime/send.hpp"

namespace troupe {
namespace {

void require(bool present, const RankParts& parts, const char* what) {
  if (!present) throw std::invalid_argument("spawn_rank of rank " + std::to_string(parts.rank.value()) + ": " + what + " is missing in RankParts");
}

bool sums_over_replicas(const Plan& plan) {
  return std::any_of(plan.operations.begin(), plan.operations.end(),
                     [](const PlannedOperation& operation) { return operation.communicator == CommunicatorKind::dp_replicate; });
}

void check(const RankParts& parts) {
  require(parts.runtime, parts, "runtime");
  require(parts.directory, parts, "directory");
  require(parts.system, parts, "system");
  require(parts.plans && !parts.plans->train.operations.empty(), parts, "a plan of a train step");
  require(parts.loader && parts.compute && parts.shard, parts, "a program (loader, compute or shard)");
  require(parts.dp_replicate || !sums_over_replicas(parts.plans->train), parts, "the communicator dp_replicate, while the plans sum over replicas,");
  const bool takes_snapshots = !parts.plans->train_and_snapshot.operations.empty();
  require(!takes_snapshots || (parts.snapshot && parts.checkpoint_folder), parts, "the snapshot program or checkpoint_folder, while the plans take snapshots,");
  require(!parts.plans->train.find({OperationKind::keep, {}, {}, false}) || parts.keep, parts, "the keep program, while the plans keep snapshots in memory,");
  const bool lanes = std::all_of(parts.lanes.begin(), parts.lanes.end(), [](const auto& lane) { return lane != nullptr; });
  require(parts.device || lanes, parts, "a device, or one of the six lanes,");
}

}  // namespace

EdgeLayout edge_layout_of(const RankParts& parts) {
  SlotBytes bytes;
  bytes.batches = parts.batch.bytes();
  for (std::uint32_t unit = 0; unit < parts.units; ++unit) {
    bytes.weights = std::max(bytes.weights, parts.shard->weights_bytes(Unit{unit}));
    bytes.gradients = std::max(bytes.gradients, parts.shard->gradients_bytes(Unit{unit}));
  }
  if (parts.snapshot) bytes.snapshots = parts.snapshot->snapshot_bytes();
  return EdgeLayout::plan(parts.slots, bytes);
}

struct RankActors::State {
  template <class Kind>
  [[nodiscard]] caf::actor spawn(ActorKind kind) const {
    const ActorSeat seat{*parts().runtime, address(kind), parts().epoch};
    return parts().system->spawn<Kind>(seat, std::shared_ptr<const RankGround>(ground));
  }
  std::shared_ptr<RankGround> ground;
  std::array<caf::actor, kinds.size()> actors;

  [[nodiscard]] const RankParts& parts() const { return ground->parts; }
  [[nodiscard]] ActorAddress address(ActorKind kind) const { return {parts().rank, kind}; }
  template <class T, class Fill>
  void tell(ActorKind to, Step step, Fill&& fill) const {
    send<T>(*parts().runtime, Heading{address(to), address(ActorKind::supervisor), Where{parts().epoch, step, {}, {}}, {}, Nanos{0}, 0},
            std::forward<Fill>(fill));
  }
};

RankActors::RankActors(std::unique_ptr<State> state) : state_(std::move(state)) {}
RankActors::RankActors(RankActors&&) noexcept = default;
RankActors& RankActors::operator=(RankActors&& other) noexcept {
  if (this == &other) return *this;
  quit();
  state_ = std::move(other.state_);
  return *this;
}
RankActors::~RankActors() { quit(); }

RankActors spawn_rank(RankParts parts) {
  check(parts);
  for (std::size_t lane = 0; lane < lane_count; ++lane) {
    if (parts.lanes[lane]) continue;
    parts.lanes[lane] = parts.device->open_lane(static_cast<LaneKind>(lane), parts.rank, parts.runtime->clock, parts.runtime->tracer);
  }
  const EdgeLayout layout = edge_layout_of(parts);
  if (parts.arena_bytes == 0) parts.arena_bytes = layout.device_bytes;
  auto state = std::make_unique<RankActors::State>();
  state->ground = std::make_shared<RankGround>(std::move(parts), layout);
  const RankParts& given = state->parts();
  state->actors = {state->spawn<DataLoader>(ActorKind::data_loader), state->spawn<Compute>(ActorKind::compute), state->spawn<Sharding>(ActorKind::sharding),
                   state->spawn<Checkpoint>(ActorKind::checkpoint), state->spawn<Metrics>(ActorKind::metrics)};
  for (std::size_t i = 0; i < RankActors::kinds.size(); ++i) given.directory->add(state->address(RankActors::kinds[i]), state->actors[i]);
  return RankActors(std::move(state));
}

void RankActors::begin_step(Step step, StepKind kind, double learning_rate, bool last, std::uint8_t keep) {
  for (const ActorKind to : {ActorKind::data_loader, ActorKind::compute, ActorKind::sharding, ActorKind::checkpoint}) {
    state_->tell<schema::StepBegin>(to, step, [&](auto body) {
      body.setKind(static_cast<schema::StepKind>(kind));
      body.setLearningRate(learning_rate);
      body.setLast(last);
      body.setKeep(keep);
    });
  }
}

void RankActors::drain_all() {
  for (const ActorKind to : kinds) state_->tell<schema::Drain>(to, Step{}, [](auto) {});
}

void RankActors::end_epoch_all(const std::string& cause) {
  for (const ActorKind to : kinds) state_->tell<schema::EpochEnd>(to, Step{}, [&](auto body) { body.setCause(cause); });
}

void RankActors::inspect_all() {
  for (const ActorKind to : kinds) state_->tell<schema::Inspect>(to, Step{}, [](auto) {});
}

void RankActors::halt(const std::string& cause) {
  for (const auto& lane : state_->parts().lanes) lane->halt(cause);
}

void RankActors::quit() {
  if (!state_) return;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    if (!state_->actors[i]) continue;
    // Only its own entry: an actor of a later epoch may stand there already.
    if (state_->parts().directory->find(state_->address(kinds[i])) == state_->actors[i]) state_->parts().directory->remove(state_->address(kinds[i]));
    caf::anon_send_exit(state_->actors[i], caf::exit_reason::user_shutdown);
    state_->actors[i] = nullptr;
  }
}

void RankActors::quit_and_join() {
  if (!state_) return;
  const auto actors = state_->actors;
  quit();
  caf::scoped_actor self(*state_->parts().system);
  for (const caf::actor& actor : actors) {
    if (actor) self->wait_for(actor);
  }
}

caf::actor RankActors::restart_metrics() {
  caf::actor& actor = state_->actors[static_cast<std::size_t>(std::ranges::find(kinds, ActorKind::metrics) - kinds.begin())];
  actor = state_->spawn<Metrics>(ActorKind::metrics);
  state_->parts().directory->add(state_->address(ActorKind::metrics), actor);
  return actor;
}

void RankActors::for_each_actor(const std::function<void(ActorKind, const caf::actor&)>& visit) const {
  for (std::size_t i = 0; i < kinds.size(); ++i)
    if (state_->actors[i]) visit(kinds[i], state_->actors[i]);
}

Lane& RankActors::lane(LaneKind kind) const { return state_->ground->lane(kind); }

bool RankActors::drain_lanes(Nanos limit) {
  return std::all_of(state_->parts().lanes.begin(), state_->parts().lanes.end(), [&](const auto& lane) { return lane->drain(limit); });
}

const EdgeMemory& RankActors::memory() const { return state_->ground->memory; }

}  // namespace troupe
