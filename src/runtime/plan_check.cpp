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

std::string rank_name(std::size_t rank) { return "rank " + std::to_string(rank); }

/// One rank: which operations of the two steps were issued and done. Index: step × operations + position.
class RankRun {
 public:
  RankRun(const Plan& plan, const SlotCounts& slots) : plan_(plan), total_(steps_to_run * plan.operations.size()), issued_(total_), completed_(total_) {
    for (const EdgeKind edge : edges) free_[static_cast<std::size_t>(edge)] = slots.of(edge);
    for (const PlannedOperation& planned : plan.operations) {
      previous_.emplace_back();
      for (const Fact& fact : planned.after_previous) {
        if (const auto found = plan.find(fact)) previous_.back().push_back(*found);
      }
    }
  }

  [[nodiscard]] bool finished() const { return done_count_ == total_; }
  [[nodiscard]] const PlannedOperation& operation(std::size_t i) const { return plan_.operations[i % plan_.operations.size()]; }

  /// Issues what may be issued. True if anything was.
  bool issue() {
    bool any = false;
    for (bool again = true; again;) {
      again = false;
      for (const Issuer issuer : {device, disk, storage}) {
        const auto next = next_of(issuer);
        if (!next || blocked(*next)) continue;
        put(*next);
        again = true;
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
    std::string text;  ///< "gather L2 of step 1 waits for a free slot of weights"
    std::optional<EdgeKind> edge;
  };
  /// The operations that would wait for ever: a collective that has begun first, then the first that cannot be issued.
  [[nodiscard]] Stuck stuck() const {
    Stuck result;
    for (const auto& lane : lanes_) {
      if (lane.empty()) continue;
      result.text = name_in_step(lane.front()) + " waits for the other ranks on " + name_of(operation(lane.front()).communicator);
    }
    for (const Issuer issuer : {device, disk, storage}) {
      const auto next = next_of(issuer);
      if (!next) continue;
      const Stuck blocked = describe_blocked(*next);
      return {result.text.empty() ? blocked.text : result.text + ", " + blocked.text, blocked.edge};
    }
    if (result.text.empty()) result.text = "done";
    return result;
  }

 private:
  /// Three issuers: the device's, the disk's, the storage's. Each has a place in the two steps' operations that only moves on.
  enum Issuer : std::size_t { device, disk, storage, issuer_count };
  static Issuer issuer_of(LaneKind lane) { return lane == LaneKind::disk ? disk : lane == LaneKind::storage ? storage : device; }
  [[nodiscard]] std::optional<std::size_t> next_of(Issuer issuer) const {
    std::size_t& at = place_[issuer];
    while (at < total_ && (issued_[at] || issuer_of(operation(at).lane) != issuer)) ++at;
    return at < total_ ? std::optional(at) : std::nullopt;
  }

  [[nodiscard]] bool satisfied(std::size_t input, LaneKind lane) const { return completed_[input] || (issued_[input] && operation(input).lane == lane); }

  struct MissingInput {
    OperationIndex input;
    bool of_step_before = false;
  };
  [[nodiscard]] std::optional<MissingInput> missing_input(std::size_t i) const {
    const std::size_t position = i % plan_.operations.size(), step_start = i - position;
    for (const OperationIndex input : operation(i).after) {
      if (!satisfied(step_start + input.value(), operation(i).lane)) return MissingInput{input, false};
    }
    if (step_start == 0) return std::nullopt;
    for (const OperationIndex input : previous_[position]) {
      if (!satisfied(step_start - plan_.operations.size() + input.value(), operation(i).lane)) return MissingInput{input, true};
    }
    return std::nullopt;
  }
  [[nodiscard]] bool blocked(std::size_t i) const { return waits_for_slot(i) || missing_input(i); }
  [[nodiscard]] bool waits_for_slot(std::size_t i) const { return operation(i).takes && free_[static_cast<std::size_t>(*operation(i).takes)] == 0; }

  [[nodiscard]] std::string name_in_step(std::size_t i) const { return operation(i).name() + " of step " + std::to_string(i / plan_.operations.size() + 1); }
  [[nodiscard]] Stuck describe_blocked(std::size_t i) const {
    if (const auto missing = missing_input(i)) {
      return {name_in_step(i) + " waits for " + describe_as_input(plan_[missing->input].fact) + (missing->of_step_before ? " of the step before" : ""),
              std::nullopt};
    }
    return {name_in_step(i) + " waits for a free slot of " + name_of(*operation(i).takes), operation(i).takes};
  }

  void put(std::size_t i) {
    if (operation(i).takes) --free_[static_cast<std::size_t>(*operation(i).takes)];
    issued_[i] = true;
    lanes_[static_cast<std::size_t>(operation(i).lane)].push_back(i);
    run_local();
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
  std::vector<std::vector<OperationIndex>> previous_;  ///< what each operation needs of the step before
  mutable std::array<std::size_t, issuer_count> place_{};
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
    return Error{std::string("the ranks' plans differ on communicator ") + name_of(communicator) + ": where rank 0 calls " + text(*first) + ", " +
                 rank_name(rank) + " calls " + text(*other)};
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
