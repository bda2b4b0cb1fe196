#include <fmt/format.h>

#include <algorithm>

#include "actors/coordinator.hpp"
#include "src/base/cut_text.hpp"
#include "src/base/fnv.hpp"

/// From one epoch to the next by intention: other members, another configuration.
namespace troupe {
namespace {

std::string names_of(const std::vector<Rank>& ranks) {
  std::string names;
  for (const Rank rank : ranks) names += fmt::format("{}{}", names.empty() ? (ranks.size() == 1 ? "rank " : "ranks ") : ", ", rank.value());
  return names;
}

bool names(const std::vector<Rank>& ranks, Rank rank) { return std::ranges::find(ranks, rank) != ranks.end(); }

Error no_room(const ChangeRequest& request, const EpochChanges& changes) {
  if (!request.which.empty()) return Error{fmt::format("{}: nobody is there who would start all of them", names_of(request.which))};
  if (!changes.can_start) return Error{fmt::format("{} more ranks: this host takes at most {} in all", request.join, changes.most_ranks)};
  return Error{
      fmt::format("{} more rank{}: so many of the {} that the hosts of this run take are not free where an agent is; give the command of the run on a "
                  "host that is missing, with its --node-rank",
                  request.join, request.join == 1 ? "" : "s", changes.most_ranks)};
}

}  // namespace

std::uint64_t Coordinator::Epoch::layout_of(const BeginEpoch& begin) {
  std::string text = std::to_string(begin.members.size());
  for (const std::string& change : begin.changes) text += ";" + change;
  return fnv1a(text);
}

bool Coordinator::is_member(Rank rank) const { return !epoch_ || std::ranges::binary_search(epoch_->begun.members, rank); }

// --- what is asked for ---

Result<Agreed> Coordinator::agree_on_epoch(const ChangeRequest& request) {
  std::string all;
  for (const std::string& change : request.set) all += (all.empty() ? "" : ", ") + change;
  const auto ranks = static_cast<std::uint32_t>(world_.empty() ? options_.epoch.world_size : world_.size());
  if (request.ranks != ranks)
    return Error{fmt::format("the run has {} ranks by now, and this was planned for {}: nothing was changed; ask again in a moment", ranks, request.ranks)};
  const Step from = horizon_ ? horizon_->furthest().next() : options_.epoch.restore_step.next();
  if (request.by.empty())
    return Agreed{fmt::format("{} would be in force from about step {} on, by a new epoch on all ranks, with the same processes and no step lost{}", all,
                              from.value(), request.means.empty() ? request.means : "; " + request.means)};
  if (phase_ != Phase::running) return Error{fmt::format("the run is {} just now: nothing was changed; ask again in a moment", name_of_phase())};
  if (auto taken = options_.change(request.set, from); !taken) return taken.error();
  changes_.push_back({.number = changes_.size() + 1, .from = from, .text = all, .by = request.by, .state = ChangeView::State::waits, .epoch = true});
  events_.changed(from, request.set, request.by);
  plan_next_epoch();
  return Agreed{fmt::format("{} from step {} on, by a new epoch on all ranks", all, from.value()), changes_.back().number};
}

/// Ranks of a host that is there again: whoever of them came otherwise, or was let go on somebody's wish, is not to be brought back.
Result<Agreed> Coordinator::agree_on_return(ChangeRequest request) {
  const std::vector<Rank> all = request.which;
  std::erase_if(request.which, [this](Rank rank) { return world_.contains(rank) || sent_away_.contains(rank); });
  if (request.which.empty()) return Agreed{fmt::format("{}: members already, or let go on somebody's wish", names_of(all))};
  std::erase_if(request.which, [this](Rank rank) { return ready_.contains(rank) || coming_.contains(rank); });
  if (request.which.empty()) return Error{fmt::format("{}: on the way already", names_of(all))};
  request.join = static_cast<std::uint32_t>(request.which.size());
  return agree_on_more(request);
}

Result<Agreed> Coordinator::agree_on_ranks(const ChangeRequest& request) {
  if (options_.changes.most_ranks == 0)
    return Error{"ranks can be added and let go where one `troupe train` has started all of them, a process each, without data.loader_hosts"};
  if (phase_ != Phase::running) return Error{fmt::format("the run is {} just now: nothing was changed; ask again in a moment", name_of_phase())};
  return request.which.empty() ? agree_on_more(request) : agree_on_return(request);
}

Result<Agreed> Coordinator::agree_on_more(const ChangeRequest& request) {
  ChangeView change{.number = changes_.size() + 1, .from = horizon_->furthest().next(), .by = request.by, .state = ChangeView::State::waits, .epoch = true};
  std::set<Rank> then = world_;
  then.insert(ready_.begin(), ready_.end());
  then.insert(coming_.begin(), coming_.end());
  std::set<Rank> staying = world_;  // of those that train: one that is still to come cannot be let go
  for (const Rank rank : leaving_) {
    then.erase(rank);
    staying.erase(rank);
  }
  if (request.leave >= staying.size()) return Error{fmt::format("{} of {} ranks cannot be let go: at least one trains on", request.leave, staying.size())};
  for (std::uint32_t i = 0; i < request.leave; ++i) {
    change.leaves.insert(change.leaves.begin(), *staying.rbegin());
    then.erase(*staying.rbegin());
    staying.erase(std::prev(staying.end()));
  }
  for (Rank rank{0}; change.joins.size() < request.join; ++rank) {
    if (rank.value() >= options_.changes.most_ranks) return no_room(request, options_.changes);
    const bool possible = (request.which.empty() || names(request.which, rank)) && (!options_.changes.can_start || options_.changes.can_start(rank));
    if (possible && !leaving_.contains(rank) && then.insert(rank).second) change.joins.push_back(rank);  // one that leaves trains until then
  }
  if (options_.changes.changes)
    if (const auto possible = options_.changes.changes(change.from, static_cast<std::uint32_t>(then.size())); !possible) return possible.error();
  change.text = change.joins.empty() ? names_of(change.leaves) + (change.leaves.size() == 1 ? " leaves" : " leave")
                                     : names_of(change.joins) + (change.joins.size() == 1 ? " joins" : " join");
  if (request.by.empty())
    return Agreed{fmt::format("{} would {}: {} ranks train on from the next step boundary", change.text, "take a new epoch", then.size())};
  for (const Rank rank : change.leaves) leaving_.insert(rank);
  for (const Rank rank : change.joins) {
    Incarnation& life = lives_[rank];
    if (rank.value() < options_.epoch.world_size || left_.contains(rank)) ++life;  // of this number there was one before
    left_.erase(rank);
    sent_away_.erase(rank);
    dead_.erase(rank);
    coming_.insert(rank);
    coming_since_[rank] = runtime().clock.now();
    events_.rank_added(rank, life);
    options_.recovery.start_again(rank, life);
  }
  changes_.push_back(change);
  events_.changed(change.from, {change.text}, request.by);
  plan_next_epoch();
  return Agreed{fmt::format("{}, by a new epoch at a step boundary{}", change.text, change.joins.empty() ? "" : " as soon as the processes have started"),
                change.number};
}

void Coordinator::joined_late(const JoinedRank& rank) {
  coming_.erase(rank.rank);
  ready_.insert(rank.rank);
  members_.joined(rank);
  members_.heard(rank.rank, Pulse{.heard = runtime().clock.now(), .step = {}, .oldest = {}, .oldest_age = {}});
  events_.joined(rank, static_cast<std::uint32_t>(members_.all_joined().size()));
  if (phase_ == Phase::running) plan_next_epoch();
}

bool Coordinator::stranger_ended(Rank rank, const std::string& cause) {
  if (coming_.erase(rank) + ready_.erase(rank) > 0) {
    members_.left(rank);
    left_.insert(rank);
    events_.fault(cause + "; it was to join, and the run goes on without it", rank, false);
    refuse_joins(rank, cause);
    if (options_.recovery.let_go) options_.recovery.let_go(rank, true);
    if (phase_ == Phase::running) plan_next_epoch();
    return true;
  }
  return left_.contains(rank);
}

void Coordinator::turn_away(const std::string& cause) {
  for (const Rank rank : std::exchange(ready_, {})) {
    members_.left(rank);
    left_.insert(rank);
    refuse_joins(rank, cause);
    if (options_.recovery.let_go) options_.recovery.let_go(rank, true);
  }
}

void Coordinator::refuse_joins(Rank rank, const std::string& cause) {
  for (ChangeView& change : changes_) {
    if (change.state != ChangeView::State::waits || !names(change.joins, rank)) continue;
    change.state = ChangeView::State::refused;
    change.problem = cause;
    events_.change_settled(change.from, change.text, cause);
  }
}

// --- the end of an epoch that another follows ---

void Coordinator::plan_next_epoch() {
  std::optional<Step> pause;
  if (options_.changes.next)
    if (const auto next = options_.changes.next(epoch_->begun.first_step)) pause = Step{next->value() - 1};
  if (!ready_.empty() || !leaving_.empty()) pause = std::min(pause.value_or(horizon_->furthest()), horizon_->furthest());
  horizon_->pause_after(pause);
}

void Coordinator::change_when_due() {
  const auto pause = horizon_->pause();
  if (phase_ != Phase::running || !pause || epoch_->reports.last_joined() < *pause || !epoch_->unsealed.empty()) return;
  hand_over_slot_ = restore_.open_hand_over();
  not_handed_over_.clear();
  enter(Phase::changing);
  events_.epoch_ends(epoch(), *pause);
  for (const Rank member : epoch_->begun.members)
    tell<schema::Drain>({member, ActorKind::supervisor}, Where{epoch(), *pause, {}, {}}, [&](schema::Drain::Builder body) {
      body.setAnother(!leaving_.contains(member));
      body.setHandOver(static_cast<std::uint8_t>(*hand_over_slot_ + 1));
    });
}

void Coordinator::begin_changed() {
  if (!std::ranges::all_of(epoch_->begun.members, [this](Rank member) { return epoch_->stopped.contains(member); })) return;
  if (!hand_over_slot_) return begin_next();  // it waits for other hosts to hold what was handed over
  const std::uint32_t slot = *std::exchange(hand_over_slot_, std::nullopt);
  const Step after = epoch_->reports.last_joined();
  if (not_handed_over_.empty()) {
    restore_.handed_over(after, epoch(), slot);
  } else {
    runtime().log.warning(
        fmt::format("the state after step {} could not be left for the next epoch: {}; steps since {} run again, and what was to change does not",
                    after.value(), not_handed_over_, describe(restore_.newest())));
    tentative_ = after.next();
    withdraw(not_handed_over_);
  }
  let_leave();
  begin_next();
}

void Coordinator::let_leave() {
  for (const Rank rank : std::exchange(leaving_, {})) {
    world_.erase(rank);
    members_.left(rank);
    left_.insert(rank);
    sent_away_.insert(rank);
    dead_.insert(rank);
    events_.rank_let_go(rank, static_cast<std::uint32_t>(world_.size()));
    if (options_.recovery.let_go) options_.recovery.let_go(rank, false);
  }
}

void Coordinator::begin_next() {
  const Step before = restore_.goes_on_after(restore_.newest()), first = before.next();
  std::set<Rank> members = world_;
  members.insert(ready_.begin(), ready_.end());
  if (!ready_.empty() && options_.changes.changes)  // agreed for the ranks that there were then: some may have been lost since
    if (const auto possible = options_.changes.changes(first, static_cast<std::uint32_t>(members.size())); !possible) {
      turn_away(possible.error().message);
      members = world_;
    }
  EpochOptions options = options_.epoch;
  options.previous = epoch();
  options.restore_step = restore_.newest().step;
  options.members = {members.begin(), members.end()};
  const bool changes = options_.changes.next && options_.changes.next(before) == first;
  tentative_ = changes && history_->newest() < first ? std::optional(first) : std::nullopt;
  std::vector<JoinedRank> joined = members_.all_joined();
  std::erase_if(joined, [&](const JoinedRank& member) {
    return !members.contains(member.rank) || (phase_ == Phase::recovering && !resting_.contains(member.rank) && !ready_.contains(member.rank));
  });
  for (JoinedRank& member : joined) member.restored = options.restore_step;  // they are told what to load
  const EpochDecision decision = decide_epoch(runtime().clock.now() - phase_since_, joined, options);
  if (const auto* refusal = std::get_if<RefuseEpoch>(&decision)) {
    cause_.reset();
    return raise({.cause = refusal->problem, .rank = refusal->rank, .signal = 0, .final = true});
  }
  if (const auto* next = std::get_if<BeginEpoch>(&decision); next != nullptr && state_is_everywhere(*next)) {
    newcomers_ = std::exchange(ready_, {});
    begin(*next);
  }
}

std::optional<std::string> Coordinator::let_go(Rank rank, const std::string& cause) {
  world_.erase(rank);
  members_.left(rank);
  resting_.erase(rank);
  leaving_.erase(rank);
  dead_.insert(rank);
  left_.insert(rank);
  newcomers_.erase(rank);
  spread_.reset();
  const auto left = static_cast<std::uint32_t>(world_.size());
  refuse_joins(rank, cause);
  events_.rank_let_go(rank, left);
  if (options_.recovery.let_go) options_.recovery.let_go(rank, true);
  if (left < std::max(1U, options_.recovery.min_ranks))
    return fmt::format("{} rank{} left, and elastic.min_ranks = {}", left, left == 1 ? " is" : "s are", options_.recovery.min_ranks);
  if (options_.changes.changes)
    if (const auto possible = options_.changes.changes(restore_.goes_on_after(restore_.newest()).next(), left); !possible) return possible.error().message;
  return std::nullopt;
}

void Coordinator::withdraw(const std::string& problem) {
  if (!tentative_) return;
  if (options_.changes.withdraw) options_.changes.withdraw(*tentative_);
  for (ChangeView& change : changes_) {
    if (change.state != ChangeView::State::waits || change.from != *tentative_ || !change.joins.empty() || !change.leaves.empty()) continue;
    change.state = ChangeView::State::refused;
    change.problem = problem;
    events_.change_settled(change.from, change.text, cut_text(problem));
  }
  tentative_.reset();
}

void Coordinator::settle_changes() {
  for (ChangeView& change : changes_) {
    if (change.state != ChangeView::State::waits) continue;
    const bool ranks = !change.joins.empty() || !change.leaves.empty();
    const bool there = std::ranges::all_of(change.joins, [this](Rank rank) { return world_.contains(rank); }) &&
                       std::ranges::none_of(change.leaves, [this](Rank rank) { return world_.contains(rank); });
    if (ranks ? !there : change.from > epoch_->begun.first_step) continue;
    if (ranks) change.from = epoch_->begun.first_step;
    change.state = ChangeView::State::in_force;
    events_.change_settled(change.from, change.text, {});
  }
  tentative_.reset();
  newcomers_.clear();
}

}  // namespace troupe
