#include "tests/support/broken_loader.hpp"

#include <caf/actor_system.hpp>
#include <chrono>

#include "tests/support/virtual_world_job.hpp"

namespace troupe {

BrokenLoader::BrokenLoader(caf::actor_config& config, const ActorSeat& seat, std::shared_ptr<const RankGround> ground, LoaderFault fault)
    : StepActor(config, seat, ground, EdgeKind::batches, {LaneKind::disk}),
      ground_(ground),
      fault_(fault),
      old_port_(seat.runtime, seat.self, EpochId{0}, ground->lane(LaneKind::disk), LaneKind::disk) {}

caf::behavior BrokenLoader::make_behavior() {
  return {on(&BrokenLoader::step_begin), on(&BrokenLoader::lane_done), on(&BrokenLoader::slot_home),
          on(&BrokenLoader::inspect),    on(&BrokenLoader::drain),     on(&BrokenLoader::epoch_end)};
}

void BrokenLoader::act() {
  while (auto next = ready()) {
    if (fault_ == LoaderFault::swaps_two_batches && !once_) {
      if (held_back_) {
        once_ = true;
        load(*next);
        load(*held_back_);
      } else {
        held_back_ = next;
      }
    } else {
      load(*next);
    }
  }
}

LanePort::Work BrokenLoader::work_of(const PlanCursor::Next& next) {
  LanePort::Work work;
  const Lease batch = write(work);
  if (fault_ == LoaderFault::keeps_a_lease && !once_) {
    once_ = true;
    kept_.push_back(batch);
  }
  work.run = [program = ground_->parts.loader, step = next.step, micro = next.operation->fact.micro, out = batch.bytes()](Stream& on) {
    program->load(on, step, micro, out);
  };
  work.letters = sends<schema::BatchReady>(ActorKind::compute, next, [](auto body) { body.setTokens(4); }, batch);
  if (fault_ == LoaderFault::decides_by_the_time_of_day) wake_after(Nanos{std::chrono::steady_clock::now().time_since_epoch().count() % 1'000'000});
  switch (fault_) {
    case LoaderFault::announces_before_it_is_done:
      work.letters();
      work.letters = nullptr;
      break;
    case LoaderFault::releases_before_it_is_done:  // and tells about memory that is no longer its own
      work.letters = sends<schema::BatchReady>(ActorKind::compute, next, [](auto body) { body.setTokens(4); }, Lease(batch.slot(), batch.bytes(), [] {}));
      work.leases.clear();
      break;
    case LoaderFault::announces_twice:
      work.letters = [announce = work.letters] {
        announce();
        announce();
      };
      break;
    case LoaderFault::never_announces: work.letters = nullptr; break;
    default: break;
  }
  return work;
}

void BrokenLoader::load(PlanCursor::Next next) {
  if (fault_ == LoaderFault::posts_for_an_older_epoch && !once_) {
    once_ = true;
    LanePort::Work work = work_of(next);
    work.letters = nullptr;
    old_port_.post(next, std::move(work));
  }
  post(next, work_of(next));
}

void break_loader(VirtualJob& job, std::uint32_t rank, const RankParts& parts, LoaderFault fault) {
  job.replace({Rank{rank}, ActorKind::data_loader}, [&job, parts, fault](caf::actor_system& system, const ActorAddress& self) {
    const auto ground = std::make_shared<const RankGround>(parts, edge_layout_of(parts));
    return system.spawn<BrokenLoader>(ActorSeat{job.runtime(), self, parts.epoch}, ground, fault);
  });
}

}  // namespace troupe
