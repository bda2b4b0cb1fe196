#include <fmt/format.h>

#include <algorithm>

#include "actors/coordinator.hpp"

/// What takes too long, and who holds it up.
namespace troupe {
namespace {

double seconds(Nanos time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

Nanos Coordinator::train_timeout() const {
  return options_.train_timeout_at && history_ ? options_.train_timeout_at(history_->newest().next()) : options_.train_timeout;
}

void Coordinator::check_deadlines() {
  const Nanos now = runtime().clock.now();
  const Nanos silence = options_.train_timeout_at ? std::max(options_.heartbeat_timeout, train_timeout()) : options_.heartbeat_timeout;
  for (const Rank rank : std::set(coming_))
    if (now - coming_since_[rank] > options_.epoch.init_timeout)
      (void)stranger_ended(
          rank, fmt::format("rank {} has not joined within {:.0f} s (comm.init_timeout_seconds)", rank.value(), seconds(options_.epoch.init_timeout)));
  if (spread_ && !spread_->done && now - spread_->since > std::max(options_.epoch.init_timeout, train_timeout())) {
    const std::string cause = fmt::format("not every host holds {} after {:.0f} s", describe(spread_->point), seconds(now - spread_->since));
    if (phase_ == Phase::changing && (!ready_.empty() || tentative_)) return change_nothing(cause);
    runtime().log.warning(cause + ": the epoch begins with what is there");
    spread_->done = true;  // whoever lacks a part says that the state is lost
  }
  if (phase_ == Phase::draining || phase_ == Phase::ending) {
    if (now - phase_since_ <= options_.stop_timeout) return;
    if (phase_ == Phase::ending) return finish();
    return raise({.cause = fmt::format("after {:.0f} s {} of {} ranks have stopped; {}", seconds(options_.stop_timeout), epoch_->stopped.size(),
                                       epoch_->begun.members.size(), members_.describe_slowest(epoch_->stopped)),
                  .rank = {}});
  }
  if (phase_ == Phase::gathering) return;  // decide_epoch() knows its own deadline
  if (phase_ == Phase::recovering) return check_rest();
  if (const auto rank = members_.silent(now, silence)) {
    if (!is_member(*rank)) return (void)stranger_ended(*rank, fmt::format("rank {} has sent no heartbeat", rank->value()));
    dead_.insert(*rank);
    return raise(
        {.cause = fmt::format("rank {} has sent no heartbeat for {:.0f} s: its process is stopped or its host is gone", rank->value(), seconds(silence)),
         .rank = rank,
         .signal = 0,
         .final = false,
         .process_gone = true});
  }
  if (phase_ == Phase::preparing && now - phase_since_ > options_.epoch.init_timeout)
    return raise({.cause = fmt::format("after {:.0f} s (comm.init_timeout_seconds) {} of {} ranks are ready for the first step; {}",
                                       seconds(options_.epoch.init_timeout), epoch_->plans.size(), epoch_->begun.members.size(), members_.describe_slowest()),
                  .rank = {}});
  if (phase_ == Phase::changing && !spread_ && now - phase_since_ > std::max(options_.stop_timeout, train_timeout()))
    return raise({.cause = fmt::format("after {:.0f} s {} of {} ranks have left their state for the next epoch; {}", seconds(now - phase_since_),
                                       epoch_->stopped.size(), epoch_->begun.members.size(), members_.describe_slowest(epoch_->stopped)),
                  .rank = {}});
  if (phase_ == Phase::running) check_progress(now);
}

/// Between two epochs: as members and mesh were, each host has its part of the state.
void Coordinator::change_nothing(const std::string& cause) {
  runtime().log.warning(cause + ": what was to change does not");
  turn_away(cause);
  withdraw(cause);
  spread_.reset();
  begin_next();
}

/// Recovering: whoever does not come to rest is started again; whoever does not come back, decide_epoch() names.
void Coordinator::check_rest() {
  if (runtime().clock.now() - phase_since_ <= options_.stop_timeout) return;
  for (const Rank member : epoch_->begun.members) {
    if (resting_.contains(member) || dead_.contains(member)) continue;
    process_ended(member, {.cause = fmt::format("rank {} did not come to rest within {:.0f} s; {}", member.value(), seconds(options_.stop_timeout),
                                                members_.describe_slowest(resting_)),
                           .rank = member});
    if (phase_ != Phase::recovering) return;
  }
}

void Coordinator::check_progress(Nanos now) {
  const Step newest = epoch_->reports.last_joined();
  const bool early = (epoch() == EpochId{1} && newest < epoch_->begun.first_step) || newest == horizon_->last_step() ||
                     horizon_->waits(newest, !epoch_->unsealed.empty());  // the first step, or a checkpoint's file
  const Nanos limit = early ? std::max(options_.epoch.init_timeout, train_timeout()) : train_timeout();
  if (now - progress_at_ <= limit) return;
  const auto culprit = members_.culprit(now, options_.silence);
  Fault fault{.cause = fmt::format("no step was finished for {:.0f} s ({}); newest step of all ranks: {}; {}{}", seconds(limit),
                                   early ? "comm.init_timeout_seconds" : "comm.train_timeout_seconds", newest.value(),
                                   culprit ? culprit->text + "; " : std::string{}, members_.describe_slowest()),
              .rank = culprit ? std::optional(culprit->rank) : std::nullopt};
  fault.process_gone = culprit && culprit->silent;
  if (fault.process_gone) dead_.insert(culprit->rank);
  show();
  if (options_.board) events_.flight_record(options_.board->get().text(now));
  raise(std::move(fault));
}

}  // namespace troupe
