#include <array>
#include <deque>

#include "src/runtime/describe.hpp"

/// The zero-duration run of all ranks together. Each rank's device (compute, comm, optimizer, copy) issues in the plan's total order,
/// its host lanes (disk, storage) in their own; a lane runs in the order of issue; a collective ends when all ranks' lanes have come to
/// it. Letters are sent on completion and slots come home with their last reader, so what is stuck here would be stuck in a real run.
namespace troupe {
namespace {

constexpr std::array<EdgeKind, edge_count> edges{EdgeKind::batches, EdgeKind::weights, EdgeKind::gradients, EdgeKind::snapshots};

std::string rank_name(std::size_t rank) { return "rank " + std::to_string(rank); }

/// One rank: which operations of its steps were issued and done. Index: over the operations of all steps, one step behind the other.
class RankRun {
 public:
  RankRun(const std::vector<Plan>& steps, const SlotCounts& slots) {
    for (const EdgeKind edge : edges) free_[static_cast<std::size_t>(edge)] = slots.of(edge);
    for (std::size_t step = 0; step < steps.size(); ++step) {
      const Plan& plan = steps[step];
      const std::size_t start = operations_.size(), before = step == 0 ? 0 : start - steps[step - 1].operations.size();
      for (const PlannedOperation& planned : plan.operations) {
        Entry entry{&planned, step, start, {}};
        for (const OperationIndex input : planned.after) entry.inputs.push_back(start + input.value());
        for (const Fact& fact : planned.after_previous) {
          if (step == 0) break;
          if (const auto found = steps[step - 1].find(fact)) entry.inputs.push_back(before + found->value());
        }
        operations_.push_back(std::move(entry));
      }
    }
    total_ = operations_.size();
    issued_.resize(total_);
    completed_.resize(total_);
  }

  [[nodiscard]] bool finished() const { return done_count_ == total_; }
  [[nodiscard]] const PlannedOperation& operation(std::size_t i) const { return *operations_[i].planned; }

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

  /// Place of the first input that keeps the operation from being issued.
  [[nodiscard]] std::optional<std::size_t> missing_input(std::size_t i) const {
    for (const std::size_t input : operations_[i].inputs) {
      if (!satisfied(input, operation(i).lane)) return input;
    }
    return std::nullopt;
  }
  [[nodiscard]] bool blocked(std::size_t i) const { return waits_for_slot(i) || missing_input(i); }
  [[nodiscard]] bool waits_for_slot(std::size_t i) const { return operation(i).takes && free_[static_cast<std::size_t>(*operation(i).takes)] == 0; }

  [[nodiscard]] std::string name_in_step(std::size_t i) const { return operation(i).name() + " of step " + std::to_string(operations_[i].step + 1); }
  [[nodiscard]] Stuck describe_blocked(std::size_t i) const {
    if (const auto missing = missing_input(i)) {
      return {name_in_step(i) + " waits for " + describe_as_input(operation(*missing).fact) +
                  (operations_[*missing].step != operations_[i].step ? " of the step before" : ""),
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
    for (const OperationIndex producer : operation(i).last_reads) ++free_[static_cast<std::size_t>(*operation(operations_[i].start + producer.value()).takes)];
  }

  struct Entry {
    const PlannedOperation* planned;
    std::size_t step, start;          ///< step from 0; place of its first operation
    std::vector<std::size_t> inputs;  ///< places, also of the step before
  };
  std::vector<Entry> operations_;
  std::size_t total_ = 0;
  std::vector<bool> issued_, completed_;
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

/// Places of the ranks that share each group of a communicator.
using Groups = std::vector<std::vector<std::size_t>>;

/// Ranks are dealt replica by replica: [replica 0: shard 0, 1, …][replica 1: …].
Groups groups_of(CommunicatorKind communicator, std::size_t ranks, std::size_t replicas) {
  const std::size_t shards = ranks / replicas;
  Groups groups(communicator == CommunicatorKind::dp_shard ? replicas : communicator == CommunicatorKind::dp_replicate ? shards : 1);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::size_t group = communicator == CommunicatorKind::dp_shard ? rank / shards : communicator == CommunicatorKind::dp_replicate ? rank % shards : 0;
    groups[group].push_back(rank);
  }
  return groups;
}

/// Lets the ranks of a group pass a collective that all of them have come to. An Error if they came to different ones.
Result<bool> meet(std::vector<RankRun>& ranks, CommunicatorKind communicator, const std::vector<std::size_t>& group) {
  const PlannedOperation* first = ranks[group.front()].arrived_at(communicator);
  if (!first) return false;
  for (std::size_t place = 1; place < group.size(); ++place) {
    const std::size_t rank = group[place];
    const PlannedOperation* other = ranks[rank].arrived_at(communicator);
    if (!other) return false;
    if (other->fact == first->fact && other->bytes == first->bytes && other->dtype == first->dtype) continue;
    const auto text = [](const PlannedOperation& operation) {
      return operation.name() + " (" + std::to_string(operation.bytes) + " bytes, " + std::string(name_of(operation.dtype)) + ")";
    };
    return Error{std::string("the ranks' plans differ on communicator ") + name_of(communicator) + ": where " + rank_name(group.front()) + " calls " +
                 text(*first) + ", " + rank_name(rank) + " calls " + text(*other)};
  }
  for (const std::size_t rank : group) ranks[rank].complete_collective(communicator);
  return true;
}

}  // namespace

Result<void> check_plans(const std::vector<std::vector<Plan>>& sequences, const SlotCounts& slots, std::uint32_t replicas) {
  if (replicas == 0 || sequences.size() % replicas != 0)
    return Error{std::to_string(sequences.size()) + " ranks are no multiple of " + std::to_string(replicas) + " replicas"};
  std::vector<RankRun> ranks;
  for (const std::vector<Plan>& steps : sequences) {
    for (const Plan& plan : steps) {
      if (const Result<void> checked = check_references(plan, ranks.size()); !checked) return checked;
    }
    ranks.emplace_back(steps, slots);
  }
  if (ranks.empty()) return {};
  for (bool progress = true; progress;) {
    progress = false;
    for (RankRun& rank : ranks) {
      const bool issued = rank.issue();
      progress = rank.run_local() || issued || progress;
    }
    for (const CommunicatorKind communicator : {CommunicatorKind::dp_shard, CommunicatorKind::dp_replicate, CommunicatorKind::world}) {
      for (const auto& group : groups_of(communicator, ranks.size(), replicas)) {
        Result<bool> met = meet(ranks, communicator, group);
        if (!met) return met.error();
        progress = progress || *met;
      }
    }
  }
  for (const RankRun& rank : ranks) {
    if (!rank.finished()) return describe_deadlock(ranks, slots);
  }
  return {};
}

Result<void> check_plans(const std::vector<Plan>& ranks, const SlotCounts& slots, std::uint32_t replicas) {
  std::vector<std::vector<Plan>> sequences;
  sequences.reserve(ranks.size());
  for (const Plan& plan : ranks) sequences.push_back({plan, plan});
  return check_plans(sequences, slots, replicas);
}

}  // namespace troupe
