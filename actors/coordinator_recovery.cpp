#include <fmt/format.h>

#include "actors/coordinator.hpp"

/// From a fault to the next epoch.
namespace troupe {

bool Coordinator::recovers(const Fault& fault) const {
  return options_.recovery.respawn && !fault.final && (phase_ == Phase::preparing || phase_ == Phase::running);
}

void Coordinator::process_ended(Rank rank, Fault fault) {
  fault.process_gone = true;
  dead_.insert(rank);
  if (epoch_ && phase_ != Phase::recovering && epoch_->stopped.contains(rank)) return;  // it had stopped as it should
  if (rank.value() >= options_.epoch.world_size) {                                      // a loader process: nothing begins without it
    fault.final = true;
    if (phase_ == Phase::recovering) cause_.reset();
    return raise(std::move(fault));
  }
  if (phase_ == Phase::draining && options_.recovery.respawn) {  // all steps are told and saved: nobody needs it any more
    events_.fault(fault.cause + "; its work was done", rank, false);
    return;
  }
  if (phase_ != Phase::recovering) return raise(std::move(fault));
  events_.fault(fault.cause, rank, false);
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
  if (cause_->process_gone && ++deaths_[*cause_->rank] >= most)
    return fmt::format("its process has ended {} times since step {} (elastic.attempts)", deaths_[*cause_->rank], history_->newest().value());
  if (phase_ == Phase::preparing && !cause_->process_gone && ++failed_starts_ >= most)
    return fmt::format("{} epochs after step {} could not begin (elastic.attempts)", failed_starts_, history_->newest().value());
  events_.recovering(epoch(), std::max(attempts_, 1U));
  enter(Phase::recovering);
  resting_.clear();
  restore_.epoch_ended();
  if (cause_->process_gone) start_again(*cause_->rank);
  for (const Rank member : epoch_->begun.members)
    if (!dead_.contains(member)) tell_end(member);
  return std::nullopt;
}

void Coordinator::start_again(Rank rank) {
  Incarnation& life = lives_[rank];
  ++life;
  ++respawns_;
  dead_.insert(rank);
  resting_.erase(rank);
  members_.left(rank);
  events_.respawn(rank, life);
  options_.recovery.start_again(rank, life);
}

void Coordinator::begin_again() {
  if (resting_.size() < epoch_->begun.members.size() && runtime().clock.now() - phase_since_ < options_.epoch.init_timeout) return;
  EpochOptions options = options_.epoch;
  options.previous = epoch();
  options.restore_step = restore_.newest().step;
  std::vector<JoinedRank> members = members_.all_joined();
  std::erase_if(members, [this](const JoinedRank& member) { return !resting_.contains(member.rank); });
  for (JoinedRank& member : members) member.restored = options.restore_step;  // they are told what to load
  const EpochDecision decision = decide_epoch(runtime().clock.now() - phase_since_, members, options);
  if (const auto* refusal = std::get_if<RefuseEpoch>(&decision)) {
    cause_.reset();
    return raise({.cause = refusal->problem, .rank = refusal->rank, .signal = 0, .final = true});
  }
  if (const auto* next = std::get_if<BeginEpoch>(&decision)) begin(*next);
}

void Coordinator::note_progress(const StepRecord& record) {
  const StepHistory::Told told = history_->add(record);
  if (!told.difference.empty())
    return raise({.cause = fmt::format("step {} ran again in epoch {} and did not repeat itself: {}; a run that cannot repeat itself cannot recover exactly",
                                       record.step.value(), epoch().value(), told.difference),
                  .rank = {},
                  .signal = 0,
                  .final = true});
  if (restore_.reported(record.step)) snapshot_sealed(record.step);
  if (!told.fresh) return;
  attempts_ = failed_starts_ = 0;
  told_.push_back(runtime().clock.now());
  if (told_.size() > 32) told_.pop_front();
  deaths_.clear();
  if (disturbed_at_) events_.recovered(epoch(), record.step, runtime().clock.now() - *disturbed_at_);
  disturbed_at_.reset();
  events_.step(record);
  if (!options_.recovery.respawn) history_->forget_before(record.step);  // nothing goes back
}

void Coordinator::snapshot_sealed(Step step) {
  events_.kept(step, epoch());
  if (const auto oldest = restore_.oldest_kept()) history_->forget_before(*oldest);
}

}  // namespace troupe
