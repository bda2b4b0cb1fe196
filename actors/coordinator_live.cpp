#include <fmt/format.h>

#include <algorithm>

#include "actors/coordinator.hpp"

/// What a live run is asked and told.
namespace troupe {

void Coordinator::fault_fired(const Letter<schema::FaultFired>& letter) {
  const auto body = letter.body();
  events_.fault_fired(Rank{body.getRank()}, body.getRule(), letter.where(), body.getOperation());
}

void Coordinator::change_requested(const Letter<schema::ChangeRequested>&) {
  if (!options_.requests) return;
  for (const ChangeRequest& request : options_.requests->take()) {
    const Result<Agreed> agreed = agree(request);
    if (request.answer) request.answer(agreed);
  }
}

/// Nothing that was granted changes any more, so what is agreed takes effect with the first step that was not: on all ranks at once, and again
/// if that step runs again after a fault.
Result<Agreed> Coordinator::agree(const ChangeRequest& request) {
  if (phase_ == Phase::draining || phase_ == Phase::ending || phase_ == Phase::over) return Error{"the run is ending: nothing is changed any more"};
  const Step from = horizon_ ? horizon_->furthest().next() : options_.epoch.restore_step.next();
  if (!request.fault_rule.empty()) {
    fault_rules_.push_back(request.fault_rule);
    if (epoch_)
      for (const Rank member : epoch_->begun.members)
        tell<schema::FaultRules>({member, ActorKind::supervisor}, Where{epoch(), from, {}, {}}, [this](schema::FaultRules::Builder body) {
          auto rules = body.initRules(static_cast<unsigned>(fault_rules_.size()));
          for (unsigned i = 0; i < rules.size(); ++i) rules.set(i, fault_rules_[i]);
        });
    events_.changed(from, {"faults.rules += " + request.fault_rule}, request.by);
    return Agreed{fmt::format("rule \"{}\" is in force on all ranks", request.fault_rule)};
  }
  if (from > (horizon_ ? horizon_->last_step() : options_.steps.last_step)) return Error{"no step is left that a change could take effect with"};
  if (request.join > 0 || request.leave > 0) return agree_on_ranks(request);
  if (!options_.change) return Error{"this run takes no changes"};
  if (request.new_epoch) return agree_on_epoch(request);
  std::string all;
  for (const std::string& change : request.set) all += (all.empty() ? "" : ", ") + change;
  if (request.by.empty())
    return Agreed{fmt::format("{} would be in force from about step {} on, on all ranks; memory and plans stay as they are", all, from.value())};
  if (auto taken = options_.change(request.set, from); !taken) return taken.error();
  changes_.push_back({.number = changes_.size() + 1, .from = from, .text = all, .by = request.by});
  events_.changed(from, request.set, request.by);
  return Agreed{fmt::format("{} from step {} on, on all ranks", all, from.value())};
}

const char* Coordinator::name_of_phase() const {
  switch (phase_) {
    case Phase::gathering: return "waiting for ranks to join";
    case Phase::preparing: return "preparing";
    case Phase::running: return "running";
    case Phase::changing: return "between two epochs";
    case Phase::recovering: return "recovering";
    case Phase::draining: return "draining";
    case Phase::ending: return "ending";
    case Phase::over: break;
  }
  return "over";
}

void Coordinator::show() {
  if (!options_.board) return;
  JobView view;
  view.taken = runtime().clock.now();
  view.phase = name_of_phase();
  view.world_size = world_.empty() ? options_.epoch.world_size : static_cast<std::uint32_t>(world_.size());
  view.epoch = epoch();
  view.newest = history_ ? history_->newest() : options_.epoch.restore_step;
  view.granted = horizon_ ? horizon_->granted() : view.newest;
  view.last = horizon_ ? horizon_->last_step() : options_.steps.last_step;
  view.progress_at = progress_at_;
  if (told_.size() > 1 && told_.back() > told_.front())
    view.steps_per_second = static_cast<double>(told_.size() - 1) / std::chrono::duration<double>(told_.back() - told_.front()).count();
  view.restore = describe(restore_.newest());
  view.respawns = respawns_;
  view.rollbacks = rolled_back_.size();
  view.changes = changes_;
  std::set<Rank> ranks = world_;
  ranks.insert(ready_.begin(), ready_.end());
  for (Rank rank{0}; world_.empty() && rank.value() < view.world_size; ++rank) ranks.insert(rank);
  for (const Rank rank : ranks) {
    const auto found = std::ranges::find(members_.all_joined(), rank, &JoinedRank::rank);
    const auto pulse = members_.pulses().find(rank);
    if (found == members_.all_joined().end() || pulse == members_.pulses().end())
      view.absent.push_back(rank);
    else
      view.ranks.push_back({*found, pulse->second, (phase_ == Phase::recovering && resting_.contains(rank)) || ready_.contains(rank)});
  }
  options_.board->put(std::move(view));
}

}  // namespace troupe
