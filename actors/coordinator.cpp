#include "actors/coordinator.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "actors/letter_values.hpp"
#include "src/base/cut_text.hpp"

namespace troupe {
Coordinator::Coordinator(caf::actor_config& config, const ActorSeat& seat, CoordinatorOptions options, JobEvents& events)
    : Actor(config, seat),
      options_(std::move(options)),
      events_(events),
      phase_since_(seat.runtime.clock.now()),
      progress_at_(phase_since_),
      restore_(options_.epoch.restore_step,
               {.keep_every = options_.recovery.keep_every, .rollback_steps = options_.rollback_steps, .run_ahead = options_.steps.run_ahead},
               options_.recovery.copy_kept != nullptr),
      losses_(options_.spike_window) {}

caf::behavior Coordinator::make_behavior() {
  wake_after(options_.look_every);
  return {on(&Coordinator::join),          on(&Coordinator::ready),          on(&Coordinator::report),      on(&Coordinator::shard_saved),
          on(&Coordinator::snapshot_kept), on(&Coordinator::sealed),         on(&Coordinator::heartbeat),   on(&Coordinator::fault),
          on(&Coordinator::stopped),       on(&Coordinator::stop_requested), on(&Coordinator::fault_fired), on(&Coordinator::change_requested),
          on(&Coordinator::look)};
}

// --- what happened ---

void Coordinator::join(const Letter<schema::Join>& letter) {
  const auto body = letter.body();
  JoinedRank rank{.rank = letter.from().rank,
                  .world_size = body.getWorldSize(),
                  .config_hash = body.getConfigHash(),
                  .host = body.getHost(),
                  .pid = body.getPid(),
                  .restored = Step{body.getRestored()},
                  .incarnation = Incarnation{body.getIncarnation()}};
  if (phase_ == Phase::over || phase_ == Phase::ending) return tell_end(rank.rank);  // its Join and the end have crossed
  if (coming_.contains(rank.rank) && rank.incarnation == lives_[rank.rank]) return joined_late(rank);
  if (phase_ == Phase::recovering) {
    if (rank.incarnation != lives_[rank.rank] || resting_.contains(rank.rank)) return;  // of a life that is over, or told twice
    rank.restored = restore_.newest().step;                                             // what it found does not matter: it is told what to load
    resting_.insert(rank.rank);
    dead_.erase(rank.rank);
  } else if (phase_ == Phase::gathering) {
    if (rank.incarnation < lives_[rank.rank]) return;  // of a life that is over
    dead_.erase(rank.rank);
  } else {
    return raise({fmt::format("rank {} (pid {} on {}) joined a job that already runs", rank.rank.value(), rank.pid, rank.host), rank.rank});
  }
  members_.joined(rank);
  members_.heard(rank.rank, Pulse{.heard = runtime().clock.now(), .step = {}, .oldest = {}, .oldest_age = {}});
  events_.joined(rank, static_cast<std::uint32_t>(members_.all_joined().size()));
}

void Coordinator::ready(const Letter<schema::EpochReady>& letter) {
  if (phase_ != Phase::preparing) return;
  PlanHashes hashes;
  for (const auto plan : letter.body().getPlanHashes()) hashes[static_cast<CommunicatorKind>(plan.getCommunicator())] = plan.getHash();
  epoch_->plans[letter.from().rank] = std::move(hashes);
  epoch_->arena_bytes = std::max(epoch_->arena_bytes, letter.body().getArenaBytes());
  epoch_->devices.push_back({letter.body().getPeakFlops(), letter.body().getPeakFlopsFp8(), letter.body().getDeviceBytes()});
}

void Coordinator::report(const Letter<schema::StepReport>& letter) {
  // A step that every rank had committed when the run failed counts, though its last report comes after the fault.
  const bool failed = epoch_ && phase_ == Phase::ending && cause_ && !cause_->last_word;
  if (phase_ != Phase::running && !failed) return;
  const Step step = letter.where().step;
  const RankReport report = value_of(letter.body());
  if (failed && report.outcome == VerdictOutcome::void_) return;
  if (report.outcome == VerdictOutcome::void_)
    return raise(
        {fmt::format("rank {} reports step {} as void: its collectives were aborted or returned stale bytes", letter.from().rank.value(), step.value()),
         letter.from().rank});
  const auto joined = epoch_->reports.add(epoch(), step, letter.from().rank, report);
  if (const auto* mismatch = std::get_if<StepJoin::Mismatch>(&joined))
    return raise({.cause = mismatch->problem, .rank = letter.from().rank, .last_word = true});
  if (const auto* record = std::get_if<StepRecord>(&joined)) {
    progress_at_ = runtime().clock.now();
    if (epoch_->unsealed.contains(step)) epoch_->seals.reported(step, record->total_tokens);
    const bool news = note_progress(*record);
    if (epoch_->unsealed.contains(step)) history_->pin(step);  // what is being saved may be gone back to
    if (news) guard(*record);
  }
}

void Coordinator::shard_saved(const Letter<schema::ShardSaved>& letter) {
  if (phase_ != Phase::running) return;
  const auto body = letter.body();
  ShardFact fact{.rank = letter.from().rank, .file = body.getFile(), .bytes = body.getBytes(), .hash = body.getHash(), .problem = {}};
  if (!body.getOk()) fact.problem = body.getProblem().size() > 0 ? std::string{body.getProblem()} : std::string{"the shard could not be written"};
  epoch_->seals.add(letter.where().step, std::move(fact));
}

void Coordinator::sealed(const Letter<schema::CheckpointSealed>& letter) {
  if (!epoch_) return;
  const Step step = letter.where().step;
  const bool ok = letter.body().getOk();
  const std::string problem = ok ? std::string{} : std::string{letter.body().getProblem()};
  if (ok) {
    if (restore_.sealed_on_disk(step)) sealed_ = step;
    history_->pin(step);
  }
  events_.checkpoint(step, problem);
  if (EpochId{letter.body().getEpoch()} != epoch() || phase_ == Phase::recovering) return;  // its ranks do not wait for it any more
  epoch_->unsealed.erase(step);
  progress_at_ = runtime().clock.now();
  tell_members<schema::CheckpointSealed>(ActorKind::checkpoint, step, [&](auto body) {
    body.setOk(ok);
    body.setProblem(cut_text(problem));
  });
  if (!ok && phase_ == Phase::running && step == horizon_->last_step())
    raise({.cause = fmt::format("the last checkpoint (step {}) could not be saved: {}", step.value(), problem), .rank = {}, .signal = 0, .final = true});
}

void Coordinator::heartbeat(const Letter<schema::Heartbeat>& letter) {
  const auto body = letter.body();
  if (!members_.known(letter.from().rank)) return;  // of a life that is over
  members_.heard(letter.from().rank, Pulse{.heard = runtime().clock.now(),
                                           .step = Step{body.getStep()},
                                           .oldest = body.getOldest(),
                                           .oldest_age = Nanos{static_cast<Nanos::rep>(body.getOldestNanos())},
                                           .actors = actors_of(body),
                                           .resident_bytes = body.getResidentBytes()});
}

void Coordinator::fault(const Letter<schema::FaultReport>& letter) {
  const Rank rank{letter.body().getRank()};
  const auto body = letter.body();
  Fault fault{.cause = body.getCause(), .rank = rank, .signal = body.getSignal()};
  if (letter.from().rank != launcher_rank) {
    if (body.getRestoreLost() && phase_ == Phase::preparing) restore_point_lost(fault);
    return raise(std::move(fault));
  }
  if (Incarnation{body.getIncarnation()} < lives_[rank]) return;  // its successor has been asked for already
  process_ended(rank, std::move(fault));
}

void Coordinator::stopped(const Letter<schema::Stopped>& letter) {
  if (!epoch_) return;
  if (phase_ == Phase::changing && hand_over_slot_ && !letter.body().getHandedOver() && not_handed_over_.empty())
    not_handed_over_ = fmt::format("rank {}: {}", letter.from().rank.value(), letter.body().getProblem().cStr());
  if (phase_ == Phase::recovering) {
    if (!members_.known(letter.from().rank)) return;  // its death has overtaken its last letter
    resting_.insert(letter.from().rank);
  } else {
    epoch_->stopped.insert(letter.from().rank);
  }
}

void Coordinator::stop_requested(const Letter<schema::StopRequested>& letter) {
  if (stop_asked_ || phase_ == Phase::draining || phase_ == Phase::ending || phase_ == Phase::over) return;
  stop_asked_ = true;
  const std::string reason = letter.body().getReason();
  const bool begun = phase_ == Phase::running || (horizon_ && history_->newest() > options_.epoch.restore_step);
  events_.stop_requested(reason, begun ? horizon_->stop() : Step{0});
}

void Coordinator::look(const Letter<schema::Tick>&) {
  if (phase_ == Phase::over) return;
  check_deadlines();
  show();
  wake_after(options_.look_every);
}

// --- what to do about it ---

void Coordinator::act() {
  switch (phase_) {
    case Phase::gathering: return decide_membership();
    case Phase::preparing: return start_steps();
    case Phase::running:
      while (auto parts = epoch_->seals.take()) seal(std::move(*parts));
      grant();
      drain_when_finished();
      return change_when_due();
    case Phase::changing: return begin_changed();
    case Phase::recovering: return begin_again();
    case Phase::draining:
    case Phase::ending: return finish_when_stopped();
    case Phase::over: return;
  }
}

void Coordinator::decide_membership() {
  if (stop_asked_) {  // while ranks still join: there is nothing to save, and nothing has failed
    end_epoch();
    return finish_when_stopped();
  }
  const EpochDecision decision = decide_epoch(runtime().clock.now() - phase_since_, members_.all_joined(), options_.epoch);
  if (const auto* refusal = std::get_if<RefuseEpoch>(&decision)) return raise({.cause = refusal->problem, .rank = refusal->rank, .signal = 0, .final = true});
  if (const auto* epoch = std::get_if<BeginEpoch>(&decision)) begin(*epoch);
}

void Coordinator::begin(BeginEpoch decision) {
  decision.restore = restore_.newest();
  const Step before = restore_.goes_on_after(decision.restore);
  decision.first_step = before.next();
  if (options_.changes.changes) {
    auto changes = options_.changes.changes(decision.first_step, static_cast<std::uint32_t>(decision.members.size()));
    if (!changes) {
      cause_.reset();
      return raise({.cause = changes.error().message, .rank = {}, .signal = 0, .final = true});
    }
    decision.changes = std::move(*changes);
  }
  decision.data_row = options_.data_row ? options_.data_row(before) : 0;
  decision.respawns = 0;
  for (const Rank member : decision.members) decision.respawns += lives_[member].value();
  if (!horizon_) {
    horizon_.emplace(options_.steps, decision.restore_step);
    history_.emplace(decision.restore_step, options_.tokens_before ? options_.tokens_before(decision.restore_step) : 0);
  }
  horizon_->rewind(before);
  horizon_->pause_after(std::nullopt);
  world_ = {decision.members.begin(), decision.members.end()};
  restore_.epoch_begins(decision.restore);
  cause_.reset();
  epoch_.emplace(decision, history_->tokens_at(before));
  if (!newcomers_.empty()) layouts_.clear();  // they hold nothing of earlier epochs, whatever ranks they are
  layouts_[decision.epoch] = Layout::of(decision.members, decision.changes);
  spread_.reset();
  plan_next_epoch();
  enter_epoch(decision.epoch);
  enter(Phase::preparing);
  events_.epoch_begun(decision);
  tell_members<schema::EpochBegin>(ActorKind::supervisor, decision.first_step, [&](schema::EpochBegin::Builder body) {
    auto members = body.initMembers(static_cast<unsigned>(decision.members.size()));
    for (unsigned i = 0; i < members.size(); ++i) members.set(i, decision.members[i].value());
    body.setFirstStep(decision.first_step.value());
    body.setRestoreStep(decision.restore_step.value());
    body.setCommunicatorTag(decision.communicator_tag);
    if (decision.restore.place == EpochOrigin::Place::memory) {
      body.setMemorySlot(static_cast<std::uint8_t>(decision.restore.slot + 1));
      body.setRestoreEpoch(decision.restore.epoch.value());
    }
    body.setDataRow(decision.data_row);
    body.setRespawns(decision.respawns);
    auto changes = body.initChanges(static_cast<unsigned>(decision.changes.size()));
    for (unsigned i = 0; i < changes.size(); ++i) changes.set(i, decision.changes[i]);
    auto rules = body.initFaultRules(static_cast<unsigned>(fault_rules_.size()));
    for (unsigned i = 0; i < rules.size(); ++i) rules.set(i, fault_rules_[i]);
  });
}

void Coordinator::start_steps() {
  if (epoch_->plans.size() < epoch_->begun.members.size()) return;
  if (const auto problem = compare_plans(epoch_->plans)) return raise({.cause = *problem, .rank = {}, .signal = 0, .final = true});
  enter(Phase::running);
  events_.epoch_ready(epoch(), epoch_->arena_bytes);
  settle_changes();
  plan_next_epoch();
  events_.devices(common_powers(epoch_->devices));
  const bool stopped_early = stop_asked_ && history_->newest() == options_.epoch.restore_step;
  if (stopped_early || epoch_->begun.first_step > horizon_->last_step()) {  // nothing to do: a stop during the start, or a finished run
    enter(Phase::draining);
    return tell_members<schema::Drain>(ActorKind::supervisor, epoch_->begun.before_first(), [](auto) {});
  }
  grant();
}

void Coordinator::grant() {
  auto grants = horizon_->advance(epoch_->reports.last_joined(), !epoch_->unsealed.empty(), restore_.may_grant_until(horizon_->granted()));
  if (grants.empty()) return;
  for (StepGrant& grant : grants) {
    if (snapshots(grant.kind)) epoch_->unsealed.insert(grant.step);
    if (!grant.last) grant.keep = restore_.open_keep(grant.step, epoch(), static_cast<std::uint32_t>(epoch_->begun.members.size()));
  }
  tell_members<schema::Horizon>(ActorKind::supervisor, grants.back().step, [&](schema::Horizon::Builder body) {
    auto list = body.initGrants(static_cast<unsigned>(grants.size()));
    for (unsigned i = 0; i < list.size(); ++i) {
      list[i].setStep(grants[i].step.value());
      list[i].setKind(static_cast<schema::StepKind>(grants[i].kind));
      list[i].setLast(grants[i].last);
      list[i].setLearningRate(grants[i].learning_rate);
      list[i].setKeep(static_cast<std::uint8_t>(grants[i].keep ? *grants[i].keep + 1 : 0));
    }
  });
}

void Coordinator::drain_when_finished() {
  if (epoch_->reports.last_joined() < horizon_->last_step() || !epoch_->unsealed.empty()) return;
  enter(Phase::draining);
  tell_members<schema::Drain>(ActorKind::supervisor, epoch_->reports.last_joined(), [](auto) {});
}

void Coordinator::finish_when_stopped() {
  const auto gone = [this](Rank member) { return epoch_->stopped.contains(member) || dead_.contains(member); };
  if (!epoch_ || std::ranges::all_of(epoch_->begun.members, gone)) finish();
}

void Coordinator::seal(CheckpointParts parts) {
  const Step step = parts.step;
  if (std::string problem = parts.problem(); !problem.empty()) {  // all ranks have told their part: nobody writes there any more
    std::function<void()> clear;
    if (options_.give_up) clear = [give_up = options_.give_up, step, epoch = parts.epoch] { give_up(step, epoch); };
    return post_to_storage(fmt::format("give up step {}", step.value()), step, std::move(problem), std::move(clear));
  }
  if (!options_.seal) return post_to_storage({}, step, "this job has no storage", {});
  post_to_storage(fmt::format("seal step {}", step.value()), step, {}, [seal = options_.seal, parts = std::move(parts)] { seal(parts); });
}

void Coordinator::post_to_storage(std::string name, Step step, std::string problem, std::function<void()> work) {
  const Where where{epoch(), step, {}, {}};
  auto tell_outcome = [&runtime = runtime(), where = Where{EpochId{0}, step, {}, {}}, of = epoch(),
                       self = self()](const std::string& found) {  // read whatever the epoch
    troupe::send<schema::CheckpointSealed>(runtime, Heading{self, self, where, {}, Nanos{0}, 0}, [&](auto body) {
      body.setOk(found.empty());
      body.setProblem(found);
      body.setEpoch(of.value());
    });
  };
  if (!work || options_.storage == nullptr) return tell_outcome(problem.empty() ? "this job has no storage" : problem);
  LaneOperation operation;
  operation.name = std::move(name);
  operation.where = where;
  operation.work = [work = std::move(work)](Stream&) { work(); };
  operation.done = [tell_outcome, problem = std::move(problem)](const Outcome& outcome) {
    if (!problem.empty()) return tell_outcome(problem);
    tell_outcome(outcome.ok() ? std::string{} : outcome.cause.empty() ? std::string{"halted"} : outcome.cause);
  };
  options_.storage->post(std::move(operation));
}

void Coordinator::raise(Fault fault) {
  if (phase_ == Phase::over) return;
  const bool first = !cause_;
  events_.fault(fault.cause, fault.rank.value_or(launcher_rank), first);
  if (!first) return;
  cause_ = std::move(fault);
  if (recovers(*cause_)) {
    const auto enough = recover();
    if (!enough) return;
    cause_->cause += "; " + *enough;
  }
  end_epoch();
}

void Coordinator::tell_end(Rank member) {
  const Step step = epoch_ ? epoch_->reports.last_joined() : Step{0};
  tell<schema::EpochEnd>({member, ActorKind::supervisor}, Where{epoch(), step, {}, {}}, [this](schema::EpochEnd::Builder body) {
    body.setCause(cause_ ? cut_text(cause_->cause) : std::string{});
    body.setFinal(phase_ != Phase::recovering);
  });
}

void Coordinator::end_epoch() {
  enter(Phase::ending);
  if (epoch_) {
    for (const Rank member : epoch_->begun.members) tell_end(member);
    for (const Rank waiting : ready_) tell_end(waiting);
  } else {
    for (const JoinedRank& member : members_.all_joined()) tell_end(member.rank);
  }
}

void Coordinator::handler_failed(const std::string& cause) {
  try {
    if (phase_ == Phase::recovering) cause_.reset();
    raise({.cause = cause, .rank = {}, .signal = 0, .final = true, .last_word = true});
  } catch (...) {  // JobEvents cannot be told: the ranks still must be
    runtime().log.error(cause);
    if (phase_ == Phase::over || phase_ == Phase::ending) return;
    cause_ = Fault{.cause = cause, .rank = {}, .signal = 0, .final = true, .last_word = true};
    end_epoch();
  }
}

void Coordinator::finish() {
  enter(Phase::over);
  JobEnd end{
      .ok = !cause_, .cause = {}, .rank = {}, .signal = 0, .last_step = history_ ? history_->newest() : Step{0}, .on_request = stop_asked_, .sealed = sealed_};
  if (cause_) {
    end.cause = cause_->cause;
    end.rank = cause_->rank;
    end.signal = cause_->signal;
  }
  events_.finished(end);
}

void Coordinator::enter(Phase phase) {
  phase_ = phase;
  phase_since_ = progress_at_ = runtime().clock.now();
}

template <class T, class Fill>
void Coordinator::tell_members(ActorKind actor, Step step, Fill&& fill) {
  for (const Rank member : epoch_->begun.members) tell<T>({member, actor}, Where{epoch(), step, {}, {}}, fill);
}

}  // namespace troupe
