#include "src/simulation/flow_invariants.hpp"

#include <utility>

namespace troupe {
namespace {

std::string of_rank(std::uint32_t rank) { return " of rank " + std::to_string(rank); }
std::string of_step(Step step) { return " of step " + std::to_string(step.value()); }

}  // namespace

void FlowInvariants::begin_epoch(Rank rank, EpochId epoch, Step first, std::shared_ptr<const PlanSet> plans) {
  if (epoch > begun_) first_failure_.clear();
  begun_ = std::max(begun_, epoch);
  RankState& state = ranks_[rank.value()];
  state = RankState{epoch, first, std::move(plans), {}, {}, {}, {}, Step{first.value() - 1}};
}

const Plan& FlowInvariants::plan_of(const RankState& state, Step step) const {
  const auto kind = state.kinds.find(step);
  return state.plans->of(kind == state.kinds.end() ? StepKind::train : kind->second);
}

std::size_t FlowInvariants::next_of(const Plan& plan, LaneKind lane, std::size_t from) {
  while (from < plan.operations.size() && plan.operations[from].lane != lane) ++from;
  return from;
}

void FlowInvariants::posted(Rank rank, LaneKind lane, const LaneOperation& operation) {
  ++open_;
  const auto found = ranks_.find(rank.value());
  if (found == ranks_.end()) return;
  RankState& state = found->second;
  if (operation.where.epoch != state.epoch || state.epoch < newest_) {
    findings_.add(Invariant::one_epoch, "\"" + operation.name + "\"" + of_rank(rank.value()) + " belongs to epoch " +
                                            std::to_string(operation.where.epoch.value()) + " and was posted in epoch " + std::to_string(newest_.value()));
  }
  newest_ = std::max(newest_, operation.where.epoch);
  const auto [position, fresh] = state.lanes.try_emplace(lane, Cursor{state.first, 0});
  Cursor& cursor = position->second;
  std::size_t expected = next_of(plan_of(state, cursor.step), lane, cursor.next);
  while (expected == plan_of(state, cursor.step).operations.size() && cursor.step < operation.where.step) {
    ++cursor.step;  // a plan may have nothing for this lane
    expected = next_of(plan_of(state, cursor.step), lane, 0);
  }
  if (operation.where.step == cursor.step && operation.index.value() == expected) {
    cursor.next = expected + 1;
    return;
  }
  const Plan& plan = plan_of(state, cursor.step);
  findings_.add(Invariant::issue_order, "the " + std::string(name_of(lane)) + " lane" + of_rank(rank.value()) + " got \"" + operation.name + "\"" +
                                            of_step(operation.where.step) + ", the plan has " +
                                            (expected < plan.operations.size() ? "\"" + plan.operations[expected].name() + "\"" : "nothing") +
                                            of_step(cursor.step));
  cursor = {operation.where.step, std::size_t{operation.index.value()} + 1};
}

void FlowInvariants::finished(Rank rank, LaneKind lane, const LaneOperation& operation, const Outcome& outcome) {
  --open_;
  if (!outcome.ok() && first_failure_.empty())
    first_failure_ = std::string(name_of(lane)) + of_rank(rank.value()) + ": " + operation.name + ": " + outcome.cause;
}

void FlowInvariants::sent(const schema::Envelope::Reader& envelope) {
  const auto body = envelope.getBody();
  const Step step{envelope.getWhere().getStep()};
  const std::uint32_t rank = envelope.getTo().getRank();
  const auto found = ranks_.find(rank);
  if (found == ranks_.end()) return;
  RankState& state = found->second;
  if (EpochId{envelope.getWhere().getEpoch()} != state.epoch) return;  // dropped by whoever gets it
  if (body.isStepBegin()) {
    state.kinds[step] = static_cast<StepKind>(body.getStepBegin().getKind());
  } else if (body.isBatchReady()) {
    once(state.loaded, envelope, "was loaded");
  } else if (body.isMicroBatchDone()) {
    once(state.computed, envelope, "was computed");
  } else if (body.isStepReport() && envelope.getTo().getActor() == static_cast<std::uint16_t>(ActorKind::supervisor)) {
    step_report(state, rank, step, EpochId{envelope.getWhere().getEpoch()}, body.getStepReport());
  }
}

void FlowInvariants::once(std::set<std::pair<Step, Micro>>& seen, const schema::Envelope::Reader& envelope, const char* what) {
  const Step step{envelope.getWhere().getStep()};
  const Micro micro{envelope.getWhere().getMicro()};
  if (seen.emplace(step, micro).second) return;
  findings_.add(Invariant::step_ledger,
                "micro-batch " + std::to_string(micro.value()) + of_step(step) + of_rank(envelope.getTo().getRank()) + " " + what + " twice");
}

void FlowInvariants::step_report(RankState& state, std::uint32_t rank, Step step, EpochId, schema::StepReport::Reader report) {
  if (report.getOutcome() == schema::StepOutcome::VOID) return;
  if (step != state.reported.next()) {
    findings_.add(Invariant::step_ledger,
                  "rank " + std::to_string(rank) + " reports step " + std::to_string(step.value()) + " after step " + std::to_string(state.reported.value()));
  }
  state.reported = step;
  const Verdict verdict{static_cast<std::uint16_t>(report.getOutcome()), report.getLoss(), report.getGradNorm(), report.getTokens()};
  const auto [first, fresh] = verdicts_.try_emplace(step, rank, verdict);
  if (!fresh && !(first->second.second == verdict)) {
    findings_.add(Invariant::equal_verdicts, "step " + std::to_string(step.value()) + ": rank " + std::to_string(rank) + " reports outcome " +
                                                 std::to_string(verdict.outcome) + ", loss " + std::to_string(verdict.loss) + "; rank " +
                                                 std::to_string(first->second.first) + " outcome " + std::to_string(first->second.second.outcome) + ", loss " +
                                                 std::to_string(first->second.second.loss));
  }
}

void FlowInvariants::expect_complete(Step last) {
  if (open_ != 0) findings_.add(Invariant::progress, std::to_string(open_) + " operations never ended");
  for (auto& [rank, state] : ranks_) {
    if (state.reported != last) {
      findings_.add(Invariant::step_ledger,
                    "rank " + std::to_string(rank) + " reported steps up to " + std::to_string(state.reported.value()) + " of " + std::to_string(last.value()));
    }
    for (Step step = state.first; step <= last; ++step) {
      const Plan& plan = plan_of(state, step);
      for (const PlannedOperation& operation : plan.operations) {
        if (operation.fact.kind != OperationKind::load) continue;
        if (!state.loaded.contains({step, operation.fact.micro}) || !state.computed.contains({step, operation.fact.micro})) {
          findings_.add(Invariant::step_ledger,
                        "micro-batch " + std::to_string(operation.fact.micro.value()) + of_step(step) + of_rank(rank) + " was left out");
        }
      }
    }
    expect_all_posted(rank, state, last);
  }
}

void FlowInvariants::expect_all_posted(std::uint32_t rank, const RankState& state, Step last) {
  for (std::size_t i = 0; i < lane_count; ++i) {
    const auto lane = static_cast<LaneKind>(i);
    const auto found = state.lanes.find(lane);
    Cursor cursor = found == state.lanes.end() ? Cursor{state.first, 0} : found->second;
    for (; cursor.step <= last; cursor = {cursor.step.next(), 0}) {
      const Plan& plan = plan_of(state, cursor.step);
      const std::size_t rest = next_of(plan, lane, cursor.next);
      if (rest == plan.operations.size()) continue;
      findings_.add(Invariant::issue_order, "the " + std::string(name_of(lane)) + " lane" + of_rank(rank) + " never got \"" + plan.operations[rest].name() +
                                                "\"" + of_step(cursor.step));
      break;
    }
  }
}

Step FlowInvariants::reported(Rank rank) const {
  const auto found = ranks_.find(rank.value());
  return found == ranks_.end() ? Step{} : found->second.reported;
}

}  // namespace troupe
