#include "actors/checkpoint.hpp"

#include <stdexcept>
#include <utility>

#include "src/base/cut_text.hpp"

namespace troupe {

Checkpoint::Checkpoint(caf::actor_config& config, const ActorSeat& seat, std::shared_ptr<const RankGround> ground)
    : StepActor(config, seat, std::move(ground), EdgeKind::snapshots, {LaneKind::copy, LaneKind::storage}) {}

caf::behavior Checkpoint::make_behavior() {
  return {on(&Checkpoint::step_begin), on(&Checkpoint::step_report), on(&Checkpoint::checkpoint_sealed), on(&Checkpoint::lane_done), on(&Checkpoint::slot_home),
          on(&Checkpoint::inspect),    on(&Checkpoint::drain),       on(&Checkpoint::epoch_end)};
}

void Checkpoint::act() {
  while (auto next = ready()) {
    switch (next->operation->fact.kind) {
      case OperationKind::snapshot: snapshot(*next); break;
      case OperationKind::save: save(*next); break;
      case OperationKind::keep: keep(*next); break;
      default: throw std::logic_error("the plan gives " + next->operation->name() + " to Checkpoint");
    }
  }
}

void Checkpoint::began(const Letter<schema::StepBegin>& letter) {
  if (const std::uint8_t keep = letter.body().getKeep(); keep > 0) keeps_[letter.where().step] = keep;
}

/// Every plan has this operation; in a step that was not granted with a snapshot it does nothing.
void Checkpoint::keep(const PlanCursor::Next& next) {
  LanePort::Work work;
  const auto taken = sends<schema::SnapshotTaken>(ActorKind::sharding, next, [](auto) {});
  const auto found = keeps_.find(next.step);
  if (found == keeps_.end()) {
    work.run = [](Stream&) {};
    work.letters = taken;
    return post(next, std::move(work));
  }
  const std::uint8_t number = found->second;
  auto kept = std::make_shared<KeptSnapshot>();
  work.run = [program = parts().keep, kept, epoch = epoch(), step = next.step, number](Stream& on) { *kept = program->keep(on, epoch, step, number - 1U); };
  work.letters = [runtime = &runtime(), heading = Heading{parts().shard_saved_to, self(), next.where(epoch()), next.index, Nanos{0}, 0}, kept, number, taken] {
    taken();
    troupe::send<schema::SnapshotKept>(*runtime, heading, [&](auto body) {
      body.setSlot(number);
      body.setBytes(kept->bytes);
      body.setHash(kept->hash);
      body.setOk(true);
    });
  };
  post(next, std::move(work));
  keeps_.erase(found);
}

void Checkpoint::snapshot(const PlanCursor::Next& next) {
  LanePort::Work work;
  const Lease lease = write(work);
  work.run = [program = parts().snapshot, step = next.step, out = lease.bytes()](Stream& on) { program->copy(on, step, out); };
  work.letters = sends<schema::SnapshotTaken>(ActorKind::sharding, next, [](auto) {});
  hold(next, lease);
  post(next, std::move(work));
}

void Checkpoint::save(const PlanCursor::Next& next) {
  LanePort::Work work;
  const std::span<const std::byte> snapshot = read(next, EdgeKind::snapshots, work);
  auto saved = std::make_shared<SavedShard>();
  work.run = [program = parts().snapshot, saved, step = next.step, snapshot, folder = parts().checkpoint_folder(next.step)](Stream&) {
    *saved = program->save(step, snapshot, folder);
  };
  work.letters = [runtime = &runtime(), heading = Heading{parts().shard_saved_to, self(), next.where(epoch()), next.index, Nanos{0}, 0}, saved] {
    troupe::send<schema::ShardSaved>(*runtime, heading, [&](auto body) {
      body.setOk(true);
      body.setFile(saved->file);
      body.setBytes(saved->bytes);
      body.setHash(saved->hash);
    });
  };
  post(next, std::move(work));
}

bool Checkpoint::tolerates(Step step, OperationIndex operation, const std::string& cause) {
  const Plan* const plan_of_step = plan().plan_of(step);
  if (!plan_of_step) return false;
  const OperationKind kind = (*plan_of_step)[operation].fact.kind;
  if (kind == OperationKind::keep) {  // training goes on without it
    const Where where{epoch(), step, {}, {}};
    tell<schema::SnapshotTaken>(neighbour(ActorKind::sharding), where, [](auto) {}, {}, operation);
    tell<schema::SnapshotKept>(parts().shard_saved_to, where, [&](auto body) { body.setProblem(cut_text(cause)); }, {}, operation);
    return true;
  }
  if (kind != OperationKind::save) return false;
  runtime().log.warning("rank " + std::to_string(self().rank.value()) + ": the checkpoint of step " + std::to_string(step.value()) +
                        " was not written: " + cause);
  tell<schema::ShardSaved>(
      parts().shard_saved_to, Where{epoch(), step, {}, {}},
      [&](auto body) {
        body.setOk(false);
        body.setProblem(cut_text(cause));
      },
      {}, operation);
  return true;
}

void Checkpoint::checkpoint_sealed(const Letter<schema::CheckpointSealed>& letter) {
  const std::string step = std::to_string(letter.where().step.value());
  if (letter.body().getOk()) {
    runtime().log.debug("checkpoint of step " + step + " is sealed");
  } else {
    runtime().log.warning("checkpoint of step " + step + " was given up: " + letter.body().getProblem().cStr());
  }
}

}  // namespace troupe
