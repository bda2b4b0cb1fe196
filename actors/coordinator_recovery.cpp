#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "actors/coordinator.hpp"

/// From a fault to the next epoch.
namespace troupe {
bool Coordinator::recovers(const Fault& fault) const {
  if (fault.final) return false;
  if (fault.restore_lost && phase_ == Phase::preparing && options_.rollback_steps > 0) return true;
  // A changed epoch that a rank cannot build, or whose new rank dies, is given up: the run goes on as it was, whatever the policy.
  const bool newcomer = fault.rank && newcomers_.contains(*fault.rank), changed = tentative_ || !newcomers_.empty();
  if (phase_ == Phase::preparing && ((changed && !fault.process_gone) || newcomer)) return true;
  return options_.recovery.elastic() && (phase_ == Phase::preparing || phase_ == Phase::running || phase_ == Phase::changing);
}

void Coordinator::process_ended(Rank rank, Fault fault) {
  fault.process_gone = true;
  if (stranger_ended(rank, fault.cause)) return;
  dead_.insert(rank);
  const bool stays = phase_ == Phase::recovering || (phase_ == Phase::changing && !leaving_.contains(rank));
  if (epoch_ && !stays && epoch_->stopped.contains(rank)) return;  // it had stopped as it should
  if (rank.value() >= options_.epoch.world_size) {                 // a loader process: nothing begins without it
    fault.final = true;
    if (phase_ == Phase::recovering) cause_.reset();
    return raise(std::move(fault));
  }
  if (phase_ == Phase::gathering && options_.recovery.respawn && fault.signal != 0) {  // killed before the first epoch: nothing is lost but its start
    if (++deaths_[rank] < options_.recovery.attempts) {
      events_.fault(fault.cause, rank, false);
      return start_again(rank);
    }
    fault.cause += fmt::format("; its process has ended {} times before the run began (elastic.attempts)", deaths_[rank]);
  }
  if (phase_ == Phase::draining && options_.recovery.elastic()) {  // all steps are told and saved: nobody needs it any more
    events_.fault(fault.cause + "; its work was done", rank, false);
    return;
  }
  if (phase_ != Phase::recovering) return raise(std::move(fault));
  if (!options_.recovery.elastic()) {  // a rollback is under way, and nobody is started again
    cause_.reset();
    return raise(std::move(fault));
  }
  events_.fault(fault.cause, rank, false);
  if (options_.recovery.shrink || newcomers_.contains(rank)) {
    const auto too_few = let_go(rank, fault.cause);
    if (!too_few) return;
    cause_ = std::move(fault);
    cause_->cause += "; " + *too_few;
    return end_epoch();
  }
  if (++deaths_[rank] < options_.recovery.attempts) return start_again(rank);
  cause_ = std::move(fault);
  cause_->cause += fmt::format("; its process has ended {} times since step {} (elastic.attempts)", deaths_[rank], history_->newest().value());
  end_epoch();
}

std::optional<std::string> Coordinator::recover() {
  const Step next = history_->newest().next();
  const std::uint32_t most = options_.recovery.attempts;
  if (!disturbed_at_) disturbed_at_ = runtime().clock.now();
  if (phase_ == Phase::running && ++attempts_ >= most)
    return fmt::format("step {} has now ended {} epochs (elastic.attempts){}", next.value(), attempts_,
                       options_.recovery.describe_data ? "; it trains on " + options_.recovery.describe_data(next) : std::string{});
  const bool goes = cause_->process_gone && (options_.recovery.shrink || newcomers_.contains(*cause_->rank));
  if (cause_->process_gone && !goes && ++deaths_[*cause_->rank] >= most)
    return fmt::format("its process has ended {} times since step {} (elastic.attempts)", deaths_[*cause_->rank], history_->newest().value());
  if (phase_ == Phase::preparing && !cause_->process_gone && !cause_->restore_lost && ++failed_starts_ >= most)
    return fmt::format("{} epochs after step {} could not begin (elastic.attempts)", failed_starts_, history_->newest().value());
  if (goes)
    if (auto too_few = let_go(*cause_->rank, cause_->cause)) return too_few;
  if (phase_ == Phase::preparing && !cause_->process_gone)  // with them it cannot be built
    for (const Rank rank : std::set(newcomers_))
      if (auto too_few = let_go(rank, cause_->cause)) return too_few;
  if (phase_ == Phase::preparing && tentative_ && !cause_->process_gone) withdraw(cause_->cause);
  if (phase_ == Phase::changing) {  // whoever was let go has perhaps gone already
    std::erase_if(leaving_, [this](Rank rank) { return !epoch_->stopped.contains(rank); });
    let_leave();
    hand_over_slot_.reset();
  }
  events_.recovering(epoch(), std::max(attempts_, 1U));
  enter(Phase::recovering);
  resting_.clear();
  spread_.reset();  // of whom it was true that everything is there may be gone
  restore_.epoch_ended();
  if (cause_->process_gone && !goes) start_again(*cause_->rank);
  for (const Rank member : epoch_->begun.members)
    if (!dead_.contains(member)) tell_end(member);
  return std::nullopt;
}

void Coordinator::start_again(Rank rank) {
  Incarnation& life = lives_[rank];
  ++life;
  ++respawns_;
  spread_.reset();
  dead_.insert(rank);
  resting_.erase(rank);
  members_.left(rank);
  events_.respawn(rank, life);
  options_.recovery.start_again(rank, life);
}

void Coordinator::begin_again() {
  const auto rests = [this](Rank rank) { return resting_.contains(rank) || ready_.contains(rank); };
  const bool all = std::ranges::all_of(world_, rests) && std::ranges::none_of(epoch_->begun.members, [&](Rank member) {
                     return !world_.contains(member) && !dead_.contains(member) && !rests(member);  // to be let go, and still at work
                   });
  if (!all && runtime().clock.now() - phase_since_ < options_.epoch.init_timeout) return;
  begin_next();
}

bool Coordinator::note_progress(StepRecord record) {
  record.layout = epoch_->layout;
  const StepHistory::Told told = history_->add(record);
  if (!told.difference.empty()) {
    raise({.cause = fmt::format("step {} ran again in epoch {} and did not repeat itself: {}; a run that cannot repeat itself cannot recover exactly",
                                record.step.value(), epoch().value(), told.difference),
           .rank = {},
           .signal = 0,
           .final = true,
           .last_word = true});
    return false;
  }
  if (restore_.reported(record.step)) snapshot_sealed(record.step);
  if (!told.fresh) return rolled_back_.contains(record.step);
  attempts_ = failed_starts_ = 0;
  told_.push_back(runtime().clock.now());
  if (told_.size() > 32) told_.pop_front();
  deaths_.clear();
  if (disturbed_at_) events_.recovered(epoch(), record.step, runtime().clock.now() - *disturbed_at_);
  disturbed_at_.reset();
  events_.step(record);
  if (!options_.recovery.elastic() && options_.rollback_steps == 0) history_->forget_before(record.step);  // nothing goes back, but for a change that fails
  return true;
}

void Coordinator::restore_point_lost(Fault& fault) {
  const EpochOrigin& point = epoch_->begun.restore;
  fault.restore_lost = restore_.lost(point);
  if (fault.restore_lost)
    runtime().log.warning(fmt::format("{} is lost and not used again: {}", describe(point), fault.cause));
  else
    fault.cause += fmt::format("; the run began with {}, and there is no other state to go on from", describe(point));
}

Coordinator::Layout Coordinator::Layout::of(const std::vector<Rank>& members, const std::vector<std::string>& changes) {
  Layout layout{.members = members, .mesh = {}};
  std::ranges::copy_if(changes, std::back_inserter(layout.mesh), [](const std::string& change) { return change.starts_with("parallelism."); });
  return layout;
}

bool Coordinator::state_is_everywhere(const BeginEpoch& next) {
  const EpochOrigin point = restore_.newest();
  if (!options_.recovery.spread || point.place != EpochOrigin::Place::memory) return true;
  std::vector<std::string> changes;
  if (options_.changes.changes)
    if (auto some = options_.changes.changes(restore_.goes_on_after(point).next(), static_cast<std::uint32_t>(next.members.size()))) changes = std::move(*some);
  const auto then = layouts_.find(point.epoch);
  if (then != layouts_.end() && then->second == Layout::of(next.members, changes)) return true;  // each finds its part on its own host
  if (spread_ && spread_->point == point && spread_->members == next.members) return spread_->done;
  spread_ = Spread{.number = ++spreads_, .point = point, .members = next.members, .since = runtime().clock.now()};
  options_.recovery.spread(point, next.members, spreads_);
  return false;
}

void Coordinator::snapshot_kept(const Letter<schema::SnapshotKept>& letter) {
  if (letter.from().rank == launcher_rank) {
    if (spread_ && spread_->number == letter.where().micro.value()) spread_->done = true;
    return;
  }
  if (phase_ != Phase::running) return;
  const Step step = letter.where().step;
  const Rank rank = letter.from().rank;
  const bool ok = letter.body().getOk();
  if (letter.from().actor == ActorKind::none) {
    if (!ok) events_.not_kept(step, rank, letter.body().getProblem().cStr());
    if (restore_.copied(step, epoch(), rank, ok)) snapshot_sealed(step);
    return;
  }
  if (!ok) events_.not_kept(step, rank, letter.body().getProblem().cStr());
  bool sealed = restore_.kept(step, rank, ok);
  if (const auto& copy = options_.recovery.copy_kept) {
    const bool comes = ok && copy(rank, letter.body().getSlot() - 1U, epoch(), step);
    if (!comes) sealed = restore_.copied(step, epoch(), rank, true) || sealed;
  }
  if (sealed) snapshot_sealed(step);
}

void Coordinator::snapshot_sealed(Step step) {
  events_.kept(step, epoch());
  if (const auto oldest = restore_.oldest_kept()) history_->forget_before(*oldest);
  const auto epoch_needed = restore_.oldest_epoch_kept();
  if (!epoch_needed || *epoch_needed <= forgotten_before_) return;
  forgotten_before_ = *epoch_needed;
  layouts_.erase(layouts_.begin(), layouts_.lower_bound(forgotten_before_));
  if (options_.recovery.forget_before) options_.recovery.forget_before(forgotten_before_);
}

}  // namespace troupe
