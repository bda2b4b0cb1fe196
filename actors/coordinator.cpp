#include "actors/coordinator.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/base/cut_text.hpp"

namespace troupe {
namespace {

double seconds(Nanos time) { return std::chrono::duration<double>(time).count(); }

RankReport value_of(schema::StepReport::Reader body) {
  RankReport report;
  report.outcome = static_cast<VerdictOutcome>(body.getOutcome());
  report.kind = static_cast<StepKind>(body.getKind());
  report.loss = body.getLoss();
  report.grad_norm = body.getGradNorm();
  report.learning_rate = body.getLearningRate();
  report.tokens = body.getTokens();
  report.local_tokens = body.getLocalTokens();
  report.digest = body.getDigest();
  report.duration = Nanos{static_cast<Nanos::rep>(body.getStepNanos())};
  report.arena_peak_bytes = body.getArenaPeakBytes();
  report.bytes_gathered = body.getBytesGathered();
  report.bytes_reduced = body.getBytesReduced();
  report.wait_batch = Nanos{static_cast<Nanos::rep>(body.getWaitBatchNanos())};
  report.non_finite = body.getNonFinite();
  report.own_loss = body.getOwnLoss();
  report.wait_weights = Nanos{static_cast<Nanos::rep>(body.getWaitWeightsNanos())};
  report.wait_gradients = Nanos{static_cast<Nanos::rep>(body.getWaitGradientsNanos())};
  report.wait_snapshots = Nanos{static_cast<Nanos::rep>(body.getWaitSnapshotsNanos())};
  return report;
}

}  // namespace

Coordinator::Coordinator(caf::actor_config& config, const ActorSeat& seat, CoordinatorOptions options, JobEvents& events)
    : Actor(config, seat), options_(std::move(options)), events_(events), phase_since_(seat.runtime.clock.now()), progress_at_(phase_since_) {}

caf::behavior Coordinator::make_behavior() {
  wake_after(options_.look_every);
  return {on(&Coordinator::join),      on(&Coordinator::ready), on(&Coordinator::report),  on(&Coordinator::shard_saved),    on(&Coordinator::sealed),
          on(&Coordinator::heartbeat), on(&Coordinator::fault), on(&Coordinator::stopped), on(&Coordinator::stop_requested), on(&Coordinator::look)};
}

// --- what happened ---

void Coordinator::join(const Letter<schema::Join>& letter) {
  const auto body = letter.body();
  JoinedRank rank{.rank = letter.from().rank,
                  .world_size = body.getWorldSize(),
                  .config_hash = body.getConfigHash(),
                  .host = body.getHost(),
                  .pid = body.getPid(),
                  .restored = Step{body.getRestored()}};
  if (phase_ != Phase::gathering) {
    if (phase_ == Phase::over || phase_ == Phase::ending) return tell_end(rank.rank);  // its Join and the end have crossed
    return raise({fmt::format("rank {} (pid {} on {}) joined a job that already runs", rank.rank.value(), rank.pid, rank.host), rank.rank});
  }
  members_.heard(rank.rank, Pulse{.heard = runtime().clock.now(), .step = {}, .oldest = {}, .oldest_age = {}});
  members_.joined(rank);
  events_.joined(rank, static_cast<std::uint32_t>(members_.all_joined().size()));
}

void Coordinator::ready(const Letter<schema::EpochReady>& letter) {
  if (phase_ != Phase::preparing) return;
  PlanHashes hashes;
  for (const auto plan : letter.body().getPlanHashes()) hashes[static_cast<CommunicatorKind>(plan.getCommunicator())] = plan.getHash();
  epoch_->plans[letter.from().rank] = std::move(hashes);
  epoch_->arena_bytes = std::max(epoch_->arena_bytes, letter.body().getArenaBytes());
}

void Coordinator::report(const Letter<schema::StepReport>& letter) {
  if (phase_ != Phase::running) return;
  const Step step = letter.where().step;
  const RankReport report = value_of(letter.body());
  if (report.outcome == VerdictOutcome::void_)
    return raise(
        {fmt::format("rank {} reports step {} as void: its collectives were aborted or returned stale bytes", letter.from().rank.value(), step.value()),
         letter.from().rank});
  const auto joined = epoch_->reports.add(epoch(), step, letter.from().rank, report);
  if (const auto* mismatch = std::get_if<StepJoin::Mismatch>(&joined)) return raise({mismatch->problem, letter.from().rank});
  if (const auto* record = std::get_if<StepRecord>(&joined)) {
    progress_at_ = runtime().clock.now();
    if (epoch_->unsealed.contains(step)) epoch_->seals.reported(step, record->total_tokens);
    events_.step(*record);
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
  epoch_->unsealed.erase(step);
  progress_at_ = runtime().clock.now();
  if (ok) sealed_ = step;
  events_.checkpoint(step, problem);
  tell_members<schema::CheckpointSealed>(ActorKind::checkpoint, step, [&](auto body) {
    body.setOk(ok);
    body.setProblem(cut_text(problem));
  });
  if (!ok && phase_ == Phase::running && step == epoch_->horizon.last_step())
    raise({fmt::format("the last checkpoint (step {}) could not be saved: {}", step.value(), problem), std::nullopt});
}

void Coordinator::heartbeat(const Letter<schema::Heartbeat>& letter) {
  const auto body = letter.body();
  members_.heard(letter.from().rank, Pulse{.heard = runtime().clock.now(),
                                           .step = Step{body.getStep()},
                                           .oldest = body.getOldest(),
                                           .oldest_age = Nanos{static_cast<Nanos::rep>(body.getOldestNanos())}});
}

void Coordinator::fault(const Letter<schema::FaultReport>& letter) {
  const Rank rank{letter.body().getRank()};
  if (letter.from().rank == launcher_rank) {
    dead_.insert(rank);
    if (epoch_ && epoch_->stopped.contains(rank)) return;  // it had stopped as it should
  }
  raise({letter.body().getCause(), rank, letter.body().getSignal()});
}

void Coordinator::stopped(const Letter<schema::Stopped>& letter) {
  if (!epoch_) return;
  epoch_->stopped.insert(letter.from().rank);
}

void Coordinator::stop_requested(const Letter<schema::StopRequested>& letter) {
  if (stop_asked_ || phase_ == Phase::draining || phase_ == Phase::ending || phase_ == Phase::over) return;
  stop_asked_ = true;
  const std::string reason = letter.body().getReason();
  events_.stop_requested(reason, phase_ == Phase::running ? epoch_->horizon.stop() : Step{0});
}

void Coordinator::look(const Letter<schema::Tick>&) {
  if (phase_ == Phase::over) return;
  check_deadlines();
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
      return drain_when_finished();
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
  if (const auto* refusal = std::get_if<RefuseEpoch>(&decision)) return raise({refusal->problem, refusal->rank});
  if (const auto* epoch = std::get_if<BeginEpoch>(&decision)) begin(*epoch);
}

void Coordinator::begin(const BeginEpoch& decision) {
  epoch_.emplace(decision, options_.steps, options_.tokens_before ? options_.tokens_before(decision.restore_step) : 0);
  enter_epoch(decision.epoch);
  enter(Phase::preparing);
  events_.epoch_begun(decision);
  tell_members<schema::EpochBegin>(ActorKind::supervisor, decision.first_step, [&](schema::EpochBegin::Builder body) {
    auto members = body.initMembers(static_cast<unsigned>(decision.members.size()));
    for (unsigned i = 0; i < members.size(); ++i) members.set(i, decision.members[i].value());
    body.setFirstStep(decision.first_step.value());
    body.setRestoreStep(decision.restore_step.value());
    body.setCommunicatorTag(decision.communicator_tag);
  });
}

void Coordinator::start_steps() {
  if (epoch_->plans.size() < epoch_->begun.members.size()) return;
  if (const auto problem = compare_plans(epoch_->plans)) return raise({*problem, std::nullopt});
  enter(Phase::running);
  events_.epoch_ready(epoch(), epoch_->arena_bytes);
  if (stop_asked_ || epoch_->begun.first_step > epoch_->horizon.last_step()) {  // nothing to do: a stop during the start, or a finished run
    enter(Phase::draining);
    return tell_members<schema::Drain>(ActorKind::supervisor, epoch_->begun.restore_step, [](auto) {});
  }
  grant();
}

void Coordinator::grant() {
  const auto grants = epoch_->horizon.advance(epoch_->reports.last_joined(), !epoch_->unsealed.empty());
  if (grants.empty()) return;
  for (const StepGrant& grant : grants)
    if (grant.kind == StepKind::train_and_snapshot) epoch_->unsealed.insert(grant.step);
  tell_members<schema::Horizon>(ActorKind::supervisor, grants.back().step, [&](schema::Horizon::Builder body) {
    auto list = body.initGrants(static_cast<unsigned>(grants.size()));
    for (unsigned i = 0; i < list.size(); ++i) {
      list[i].setStep(grants[i].step.value());
      list[i].setKind(static_cast<schema::StepKind>(grants[i].kind));
      list[i].setLast(grants[i].last);
      list[i].setLearningRate(grants[i].learning_rate);
    }
  });
}

void Coordinator::drain_when_finished() {
  if (epoch_->reports.last_joined() < epoch_->horizon.last_step() || !epoch_->unsealed.empty()) return;
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
  auto tell_outcome = [&runtime = runtime(), where, self = self()](const std::string& found) {
    troupe::send<schema::CheckpointSealed>(runtime, Heading{self, self, where, {}, Nanos{0}, 0}, [&](auto body) {
      body.setOk(found.empty());
      body.setProblem(found);
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
  end_epoch();
}

void Coordinator::tell_end(Rank member) {
  const Step step = epoch_ ? epoch_->reports.last_joined() : Step{0};
  tell<schema::EpochEnd>({member, ActorKind::supervisor}, Where{epoch(), step, {}, {}}, [this](schema::EpochEnd::Builder body) {
    body.setCause(cause_ ? cut_text(cause_->cause) : std::string{});
    body.setFinal(true);
  });
}

void Coordinator::end_epoch() {
  enter(Phase::ending);
  if (epoch_) {
    for (const Rank member : epoch_->begun.members) tell_end(member);
  } else {
    for (const JoinedRank& member : members_.all_joined()) tell_end(member.rank);
  }
}

void Coordinator::handler_failed(const std::string& cause) {
  try {
    raise({cause, std::nullopt});
  } catch (...) {  // JobEvents cannot be told: the ranks still must be
    runtime().log.error(cause);
    if (phase_ == Phase::over || phase_ == Phase::ending) return;
    cause_ = Fault{cause, std::nullopt};
    end_epoch();
  }
}

void Coordinator::finish() {
  enter(Phase::over);
  JobEnd end{.ok = !cause_,
             .cause = {},
             .rank = {},
             .signal = 0,
             .last_step = epoch_ ? epoch_->reports.last_joined() : Step{0},
             .on_request = stop_asked_,
             .sealed = sealed_};
  if (cause_) {
    end.cause = cause_->cause;
    end.rank = cause_->rank;
    end.signal = cause_->signal;
  }
  events_.finished(end);
}

void Coordinator::check_deadlines() {
  const Nanos now = runtime().clock.now();
  if (phase_ == Phase::draining || phase_ == Phase::ending) {
    if (now - phase_since_ <= options_.stop_timeout) return;
    if (phase_ == Phase::ending) return finish();
    return raise({fmt::format("after {:.0f} s {} of {} ranks have stopped; {}", seconds(options_.stop_timeout), epoch_->stopped.size(),
                              epoch_->begun.members.size(), members_.describe_slowest(epoch_->stopped)),
                  std::nullopt});
  }
  if (phase_ == Phase::gathering) return;  // decide_epoch() knows its own deadline
  if (const auto rank = members_.silent(now, options_.heartbeat_timeout)) {
    dead_.insert(*rank);
    return raise({fmt::format("rank {} has sent no heartbeat for {:.0f} s: its process is stopped or its host is gone", rank->value(),
                              seconds(options_.heartbeat_timeout)),
                  rank});
  }
  if (phase_ == Phase::preparing && now - phase_since_ > options_.epoch.init_timeout)
    return raise({fmt::format("after {:.0f} s (comm.init_timeout_seconds) {} of {} ranks are ready for the first step; {}",
                              seconds(options_.epoch.init_timeout), epoch_->plans.size(), epoch_->begun.members.size(), members_.describe_slowest()),
                  std::nullopt});
  if (phase_ != Phase::running) return;
  const Step newest = epoch_->reports.last_joined();
  const bool early = newest < epoch_->begun.first_step || newest == epoch_->horizon.last_step() ||
                     epoch_->horizon.waits(newest, !epoch_->unsealed.empty());  // the first step, or a checkpoint's file
  const Nanos limit = early ? std::max(options_.epoch.init_timeout, options_.train_timeout) : options_.train_timeout;
  if (now - progress_at_ > limit)
    raise({fmt::format("no step was finished for {:.0f} s ({}); newest step of all ranks: {}; {}", seconds(limit),
                       early ? "comm.init_timeout_seconds" : "comm.train_timeout_seconds", newest.value(), members_.describe_slowest()),
           std::nullopt});
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
