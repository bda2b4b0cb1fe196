#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/runtime/plan_set.hpp"

namespace troupe {

/// Where one actor stands in the plans of consecutive steps, lane by lane, and which facts it knows. Letters only note facts here;
/// `next_ready` says what to post. Facts may come before the StepBegin of their step (mailboxes keep order only per sender), so
/// everything is keyed by step. Used by one actor; allocates once a step, not once a letter.
class PlanCursor {
 public:
  /// One operation that may be posted now.
  struct Next {
    Step step;
    OperationIndex index;
    const PlannedOperation* operation = nullptr;
    const Plan* plan = nullptr;                           ///< that it stands in
    const std::vector<OperationIndex>* before = nullptr;  ///< what it needs of the step before, as that step's indices; null: nothing
    [[nodiscard]] Where where(EpochId epoch) const noexcept { return {epoch, step, operation->fact.micro, operation->fact.unit}; }
  };

  /// `first`: of the epoch; what it needs from the step before is taken as done.
  PlanCursor(std::shared_ptr<const PlanSet> plans, ActorKind actor, Step first);

  /// The step may be posted. Repeated calls for one step do nothing.
  void begin(Step step, StepKind kind);
  /// The operation is done (ok). Repeated, and of steps that are over: nothing happens.
  /// Throws std::out_of_range for a step absurdly far ahead or an operation that no plan has.
  void fact(Step step, OperationIndex operation);
  /// Nothing is ready any more: the epoch ends.
  void stop(std::string reason);
  [[nodiscard]] bool stopped() const noexcept { return stopped_; }

  /// The next operation of one of this actor's lanes whose step has begun, whose inputs are here, and for whose output
  /// `has_slot(edge)` finds a slot; it counts as posted from then on. Call until it returns nothing.
  template <class HasSlot>
  [[nodiscard]] std::optional<Next> next_ready(HasSlot&& has_slot) {
    for (Position& position : positions_) {
      std::optional<Next> next = peek(position);
      if (!next) continue;
      if (next->operation->takes && !has_slot(*next->operation->takes)) {
        position.blocked = {Reason::slot, next->step, next->index, {}};
        continue;
      }
      advance(position);
      return next;
    }
    return std::nullopt;
  }

  [[nodiscard]] bool begun(Step step) const;
  /// Every operation of this actor in the step is done.
  [[nodiscard]] bool finished(Step step) const;
  /// All steps that have begun are finished.
  [[nodiscard]] bool idle() const;
  /// The plan of a step that has begun; null otherwise, or when it is long over.
  [[nodiscard]] const Plan* plan_of(Step step) const;
  /// What keeps each lane from going on, as of the last `next_ready`: "weights of L3 (backward)", "a free slot of weights for gather
  /// L2", "step 4 to begin". Empty: nothing.
  [[nodiscard]] std::string waiting() const;
  /// "step 3: comm 17 of 36, optimizer 0 of 10"
  [[nodiscard]] std::string position() const;
  /// The edge that the lane's next operation waits for: for what another operation puts there, or for a free slot. Nothing: for something else.
  [[nodiscard]] std::optional<EdgeKind> starved_of(LaneKind lane) const;

 private:
  enum class Reason : std::uint8_t { none, step, input, previous, slot };
  struct Blocked {
    Reason reason = Reason::none;
    Step step;
    OperationIndex operation;  ///< that waits
    OperationIndex input;      ///< for this one, of the same step or (previous) of the one before
  };
  struct Position {
    LaneKind lane{};
    std::array<std::vector<OperationIndex>, step_kind_count> operations;  ///< by step kind, in order
    Step step;
    std::size_t next = 0;
    Blocked blocked;
  };
  struct StepState {
    const Plan* plan = nullptr;  ///< null: not begun
    StepKind kind{};
    std::vector<std::uint8_t> flags;
    std::size_t open = 0;  ///< own operations not yet done
  };
  static constexpr std::uint8_t posted = 1, completed = 2;

  [[nodiscard]] std::optional<Next> peek(Position& position);
  void advance(Position& position);
  void forget_old_steps();
  [[nodiscard]] bool own(const PlannedOperation& operation, LaneKind lane) const { return operation.actor == actor_ && operation.lane == lane; }
  [[nodiscard]] bool satisfied(const StepState& state, OperationIndex input, LaneKind lane) const;
  StepState& state(Step step);
  [[nodiscard]] const StepState* known(Step step) const;
  [[nodiscard]] std::string describe_blocked(const Blocked& blocked) const;

  std::shared_ptr<const PlanSet> plans_;
  ActorKind actor_;
  Step first_;
  std::vector<Position> positions_;
  /// previous_[kind before][kind][operation]: what the operation needs of the step before, as that step's indices.
  std::array<std::array<std::vector<std::vector<OperationIndex>>, step_kind_count>, step_kind_count> previous_;
  std::deque<StepState> states_;  ///< of base_, base_ + 1, …
  Step base_;
  bool stopped_ = false;
  std::string stop_reason_;
};

}  // namespace troupe
