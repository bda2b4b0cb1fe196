#include <array>
#include <deque>

#include "src/runtime/describe.hpp"

/// The zero-duration run of all ranks together. Each rank's device (compute, comm, optimizer, copy) issues in the plan's total order,
/// its host lanes (disk, storage) in their own; a lane runs in the order of issue; a collective ends when all ranks' lanes have come to
/// it. Letters are sent on completion and slots come home with their last reader, so what is stuck here would be stuck in a real run.
namespace troupe {
namespace {

constexpr std::size_t steps_to_run = 2;
constexpr std::array<EdgeKind, edge_count> edges{EdgeKind::batches, EdgeKind::weights, EdgeKind::gradients, EdgeKind::snapshots};

bool on_host(LaneKind lane) { return lane == LaneKind::disk || lane == LaneKind::storage; }
std::string rank_name(std::size_t rank) { return "rank " + std::to_string(rank); }

/// One rank: which operations of the two steps were issued and done. Index: step × operations + position.
class RankRun {
 public:
  RankRun(const Plan& plan, const SlotCounts& slots) : plan_(plan), total_(steps_to_run * plan.operations.size()), issued_(total_), completed_(total_) {
    for (const EdgeKind edge : edges) free_[static_cast<std::size_t>(edge)] = slots.of(edge);
  }

  [[nodiscard]] bool finished() const { return done_count_ == total_; }
  [[nodiscard]] const PlannedOperation& operation(std::size_t i) const { return plan_.operations[i % plan_.operations.size()]; }

  /// Issues what may be issued. True if anything was.
  bool issue() {
    bool any = false;
    for (bool again = true; again;) {
      again = false;
      if (const auto next = next_of_device(); next && why_blocked(*next).empty()) again = put(*next);
      for (const LaneKind lane : {LaneKind::disk, LaneKind::storage}) {
        if (const auto next = next_of_lane(lane); next && why_blocked(*next).empty()) again = put(*next) || again;
      }
      any = any || again;
    }
    return any;
  }

  /// Ends what runs at the lanes' heads and needs nobody else. True if anything ended.
  bool run_local() {
    bool any = false;
    for (auto& lane : lanes_) {
      while (!lane.empty() && operation(lane.front()).communicator == CommunicatorKind::none) {
        complete(lane);
        any = true;
      }
    }
    return any;
  }

  /// The collective that stands at the head of a lane for this communicator, if any.
  [[nodiscard]] const PlannedOperation* arrived_at(CommunicatorKind communicator) const {
    for (const auto& lane : lanes_) {
      if (!lane.empty() && operation(lane.front()).communicator == communicator) return &operation(lane.front());
    }
    return nullptr;
  }
  void complete_collective(CommunicatorKind communicator) {
    for (auto& lane : lanes_) {
      if (lane.empty() || operation(lane.front()).communicator != communicator) continue;
      complete(lane);
      return;
    }
  }

  struct Stuck {
    std::string text;             ///< "gather L2 of step 1 waits for a free slot of weights"
    std::optional<EdgeKind> edge;
  };
  /// The operation that would wait for ever.
  [[nodiscard]] Stuck stuck() const {
    if (const auto next = next_of_device()) return describe_blocked(*next);
    for (const LaneKind lane : {LaneKind::disk, LaneKind::storage}) {
      if (const auto next = next_of_lane(lane)) return describe_blocked(*next);
    }
    for (const auto& lane : lanes_) {
      if (!lane.empty()) return {name_in_step(lane.front()) + " waits for the other ranks", std::nullopt};
    }
    return {"done", std::nullopt};
  }

 private:
  [[nodiscard]] std::optional<std::size_t> next_where(auto&& takes_part) const {
    for (std::size_t i = 0; i < total_; ++i) {
      if (!issued_[i] && takes_part(operation(i).lane)) return i;
    }
    return std::nullopt;
  }
  [[nodiscard]] std::optional<std::size_t> next_of_device() const {
    return next_where([](LaneKind lane) { return !on_host(lane); });
  }
  [[nodiscard]] std::optional<std::size_t> next_of_lane(LaneKind lane) const {
    return next_where([lane](LaneKind other) { return lane == other; });
  }

  [[nodiscard]] bool satisfied(std::size_t input, LaneKind lane) const { return completed_[input] || (issued_[input] && operation(input).lane == lane); }

  [[nodiscard]] std::string why_blocked(std::size_t i) const {
    const std::size_t step_start = i / plan_.operations.size() * plan_.operations.size();
    for (const OperationIndex input : operation(i).after) {
      if (!satisfied(step_start + input.value(), operation(i).lane)) return describe_as_input(plan_[input].fact);
    }
    if (step_start != 0) {
      for (const Fact& fact : operation(i).after_previous) {
        const auto found = plan_.find(fact);
        if (found && !satisfied(step_start - plan_.operations.size() + found->value(), operation(i).lane)) return describe_as_input(fact) + " of the step before";
      }
    }
    if (waits_for_slot(i)) return "a free slot of " + std::string(name_of(*operation(i).takes));
    return {};
  }
  [[nodiscard]] bool waits_for_slot(std::size_t i) const { return operation(i).takes && free_[static_cast<std::size_t>(*operation(i).takes)] == 0; }

  [[nodiscard]] std::string name_in_step(std::size_t i) const { return operation(i).name() + " of step " + std::to_string(i / plan_.operations.size() + 1); }
  [[nodiscard]] Stuck describe_blocked(std::size_t i) const {
    Stuck stuck{name_in_step(i) + " waits for " + why_blocked(i), std::nullopt};
    if (waits_for_slot(i)) stuck.edge = operation(i).takes;
    return stuck;
  }

  bool put(std::size_t i) {
    if (operation(i).takes) --free_[static_cast<std::size_t>(*operation(i).takes)];
    issued_[i] = true;
    lanes_[static_cast<std::size_t>(operation(i).lane)].push_back(i);
    run_local();
    return true;
  }
  void complete(std::deque<std::size_t>& lane) {
    const std::size_t i = lane.front();
    lane.pop_front();
    completed_[i] = true;
    ++done_count_;
    for (const OperationIndex producer : operation(i).last_reads) ++free_[static_cast<std::size_t>(*plan_[producer].takes)];
  }

  const Plan& plan_;
  std::size_t total_;
  std::vector<bool> issued_, completed_;
  std::array<std::uint32_t, edge_count> free_{};
  std::array<std::deque<std::size_t>, lane_count> lanes_;
  std::size_t done_count_ = 0;
};

/// References that point nowhere, or at something without a slot: programmer errors of a compiler, named before they confuse the run.
Result<void> check_references(const Plan& plan, std::size_t rank) {
  const auto bad = [&](const PlannedOperation& operation, const std::string& what) {
    return Error{"the plan of " + rank_name(rank) + " is malformed: " + operation.name() + " " + what};
  };
  for (const PlannedOperation& operation : plan.operations) {
    for (const OperationIndex i : operation.after) {
      if (i.value() >= plan.operations.size()) return bad(operation, "waits for operation " + std::to_string(i.value()) + ", which does not exist");
    }
    for (const auto& list : {operation.reads, operation.last_reads}) {
      for (const OperationIndex i : list) {
        if (i.value() >= plan.operations.size() || !plan[i].takes) return bad(operation, "reads the slot of an operation that takes none");
      }
    }
  }
  return {};
}

Error describe_deadlock(const std::vector<RankRun>& ranks, const SlotCounts& slots) {
  std::string each, edge_text;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const RankRun::Stuck stuck = ranks[rank].stuck();
    if (stuck.edge && edge_text.empty()) edge_text = std::string("edge ") + name_of(*stuck.edge) + " with " + std::to_string(slots.of(*stuck.edge)) + " slots";
    each += "\n  " + rank_name(rank) + ": " + stuck.text;
  }
  if (edge_text.empty()) edge_text = "no edge is full, the operations wait for each other";
  return {"this plan cannot finish (" + edge_text + "). What would wait for ever:" + each + "\nChange the order of the plan, or raise the slots of the edge."};
}

/// Lets all ranks pass a collective that all have come to. An Error if they came to different ones.
Result<bool> meet(std::vector<RankRun>& ranks, CommunicatorKind communicator) {
  const PlannedOperation* first = ranks.front().arrived_at(communicator);
  if (!first) return false;
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
    const PlannedOperation* other = ranks[rank].arrived_at(communicator);
    if (!other) return false;
    if (other->fact == first->fact && other->bytes == first->bytes && other->dtype == first->dtype) continue;
    const auto text = [](const PlannedOperation& operation) {
      return operation.name() + " (" + std::to_string(operation.bytes) + " bytes, " + std::string(name_of(operation.dtype)) + ")";
    };
    return Error{std::string("the ranks' plans differ on communicator ") + name_of(communicator) + ": where rank 0 calls " + text(*first) + ", " + rank_name(rank) +
                 " calls " + text(*other)};
  }
  for (RankRun& rank : ranks) rank.complete_collective(communicator);
  return true;
}

}  // namespace

Result<void> check_plans(const std::vector<Plan>& plans, const SlotCounts& slots) {
  std::vector<RankRun> ranks;
  for (const Plan& plan : plans) {
    if (const Result<void> checked = check_references(plan, ranks.size()); !checked) return checked;
    ranks.emplace_back(plan, slots);
  }
  if (ranks.empty()) return {};
  for (bool progress = true; progress;) {
    progress = false;
    for (RankRun& rank : ranks) {
      const bool issued = rank.issue();
      progress = rank.run_local() || issued || progress;
    }
    for (const CommunicatorKind communicator : {CommunicatorKind::dp_shard, CommunicatorKind::dp_replicate, CommunicatorKind::world}) {
      Result<bool> met = meet(ranks, communicator);
      if (!met) return met.error();
      progress = progress || *met;
    }
  }
  for (const RankRun& rank : ranks) {
    if (!rank.finished()) return describe_deadlock(ranks, slots);
  }
  return {};
}

}  // namespace troupe
