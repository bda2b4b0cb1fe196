#pragma once
#include <functional>
#include <string>
#include <vector>

#include "src/device/lane.hpp"
#include "src/runtime/plan_cursor.hpp"
#include "src/runtime/runtime.hpp"

namespace troupe {

/// An actor's end of a lane: turns a planned operation into a LaneOperation whose completion tells the actor by a LaneDone letter.
/// Letters to others leave from the same completion callback, before the LaneDone and before the leases end, so that no hop through
/// the poster's mailbox delays them and a receiver sees the fact before the free slot. They leave only when the outcome is ok; a failed
/// or halted operation is told to its poster alone, who reports the fault.
class LanePort {
 public:
  LanePort(Runtime& runtime, ActorAddress owner, EpochId epoch, Lane& lane, LaneKind kind);

  struct Work {
    std::function<void(Stream&)> run;  ///< on the lane's thread
    std::vector<Lease> leases;         ///< held until the operation is done
    std::vector<SlotAccess> accesses;
    bool read_by_host = false;      ///< the letters read what the operation wrote, so they must not leave before it is done
    std::function<void()> letters;  ///< sends what is now true, on the lane's completion thread; may be empty
  };
  /// Never blocks.
  void post(const PlanCursor::Next& next, Work work);
  /// Call for each LaneDone of this lane.
  void completed() noexcept { ++completed_; }
  [[nodiscard]] std::uint64_t in_flight() const noexcept { return posted_ - completed_; }
  [[nodiscard]] LaneKind kind() const noexcept { return kind_; }
  /// "comm: 2 in flight, gather L2 for 3.0 ms", from the lane itself; empty when idle.
  [[nodiscard]] std::string describe() const;

 private:
  Runtime& runtime_;
  ActorAddress owner_;
  EpochId epoch_;
  Lane& lane_;
  LaneKind kind_;
  std::uint64_t posted_ = 0, completed_ = 0;
};

}  // namespace troupe
