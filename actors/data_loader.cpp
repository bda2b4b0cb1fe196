#include "actors/data_loader.hpp"

namespace troupe {

DataLoader::DataLoader(caf::actor_config& config, const ActorSeat& seat, std::shared_ptr<const RankGround> ground)
    : StepActor(config, seat, std::move(ground), EdgeKind::batches, {LaneKind::disk}) {}

caf::behavior DataLoader::make_behavior() {
  return {on(&DataLoader::step_begin), on(&DataLoader::lane_done), on(&DataLoader::slot_home),
          on(&DataLoader::inspect),    on(&DataLoader::drain),     on(&DataLoader::epoch_end)};
}

void DataLoader::act() {
  while (auto next = ready()) {
    LanePort::Work work;
    const Lease batch = write(work);
    auto facts = std::make_shared<BatchFacts>();
    work.run = [program = parts().loader, facts, step = next->step, micro = next->operation->fact.micro, out = batch.bytes()](Stream& on) {
      *facts = program->load(on, step, micro, out);
    };
    work.letters = sends<schema::BatchReady>(
        ActorKind::compute, *next,
        [facts](auto body) {
          body.setTokens(facts->valid_tokens);
          body.setDigest(facts->digest);
        },
        batch);
    post(*next, std::move(work));
  }
}

}  // namespace troupe
