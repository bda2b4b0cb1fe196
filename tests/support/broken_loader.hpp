#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "actors/step_actor.hpp"

namespace troupe {

/// What is wrong with a loader.
enum class LoaderFault : std::uint8_t {
  announces_before_it_is_done,
  keeps_a_lease,
  releases_before_it_is_done,
  swaps_two_batches,
  announces_twice,
  posts_for_an_older_epoch,
  decides_by_the_time_of_day,
  never_announces,
};

/// A DataLoader with one mistake; for tests that show which invariant finds it.
class BrokenLoader final : public StepActor<BrokenLoader> {
 public:
  BrokenLoader(caf::actor_config& config, const ActorSeat& seat, std::shared_ptr<const RankGround> ground, LoaderFault fault);
  caf::behavior make_behavior() override;
  void act();

 private:
  void load(PlanCursor::Next next);
  [[nodiscard]] LanePort::Work work_of(const PlanCursor::Next& next);

  const std::shared_ptr<const RankGround> ground_;
  const LoaderFault fault_;
  LanePort old_port_;  ///< of an epoch that is over
  std::optional<PlanCursor::Next> held_back_;
  std::vector<Lease> kept_;
  bool once_ = false;
};

class VirtualJob;
/// Puts a broken loader at the address of the rank's DataLoader, on the same lane; call from VirtualJob::alter_parts, after which the
/// real one gets no more letters.
void break_loader(VirtualJob& job, std::uint32_t rank, const RankParts& parts, LoaderFault fault);

}  // namespace troupe
