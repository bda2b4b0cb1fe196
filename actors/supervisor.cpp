#include "actors/supervisor.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <caf/actor.hpp>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "actors/letter_values.hpp"
#include "src/base/cut_text.hpp"

namespace troupe {
namespace {

constexpr std::uint32_t most_restarts = 3;
constexpr const char* build_name = "build the epoch";  ///< what the builder's lane calls that operation

/// Of this process; 0 where the system does not say.
std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t all = 0, resident = 0;
  file >> all >> resident;
  return file ? resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) : 0;
}

std::vector<std::string> texts_of(capnp::List<capnp::Text>::Reader list) {
  std::vector<std::string> texts;
  for (const auto text : list) texts.emplace_back(text.cStr());
  return texts;
}

}  // namespace

Supervisor::Supervisor(caf::actor_config& config, const ActorSeat& seat, SupervisorOptions options)
    : Actor(config, seat), options_(std::move(options)), phase_since_(seat.runtime.clock.now()) {}

caf::behavior Supervisor::make_behavior() {
  set_down_handler([this](const caf::down_msg& message) { gone(caf::actor_cast<caf::actor_addr>(message.source)); });
  wake_after(options_.heartbeat_every);  // joins at the latest then
  return {on(&Supervisor::epoch_begin), on(&Supervisor::horizon), on(&Supervisor::drain),         on(&Supervisor::epoch_end),
          on(&Supervisor::step_report), on(&Supervisor::fault),   on(&Supervisor::actor_stopped), on(&Supervisor::inspection),
          on(&Supervisor::lane_done),   on(&Supervisor::beat),    on(&Supervisor::fault_rules)};
}

// --- from the Coordinator ---

void Supervisor::epoch_begin(const Letter<schema::EpochBegin>& letter) {
  if (phase_ != Phase::joining) return;
  const auto body = letter.body();
  EpochStart start{.epoch = letter.where().epoch,
                   .rank = self().rank,
                   .members = {},
                   .first_step = Step{body.getFirstStep()},
                   .restore_step = Step{body.getRestoreStep()},
                   .communicator_tag = body.getCommunicatorTag(),
                   .restore = {.place = EpochOrigin::Place::seed, .step = Step{body.getRestoreStep()}, .epoch = EpochId{body.getRestoreEpoch()}, .slot = 0},
                   .data_row = body.getDataRow(),
                   .respawns = body.getRespawns()};
  if (body.getMemorySlot() > 0) {
    start.restore.place = EpochOrigin::Place::memory;
    start.restore.slot = body.getMemorySlot() - 1U;
  } else if (start.restore_step > Step{0}) {
    start.restore.place = EpochOrigin::Place::disk;
  }
  for (const auto member : body.getMembers()) start.members.emplace_back(member);
  start.changes = texts_of(body.getChanges());
  options_.factory->fault_rules(texts_of(body.getFaultRules()));
  enter_epoch(start.epoch);
  phase_ = Phase::building;
  phase_since_ = runtime().clock.now();
  newest_ = begun_ = Step{start.first_step.value() - 1};
  raised_ = std::make_shared<Raised>();
  post_to_builder(build_name, build_operation, [raised = raised_, factory = options_.factory, start](Stream&) {
    try {
      raised->body = factory->build(start);
    } catch (const RestorePointLost&) {
      raised->restore_lost = true;
      throw;
    }
    raised->actors = spawn_rank(raised->body->parts());
  });
}

void Supervisor::horizon(const Letter<schema::Horizon>& letter) {
  if (phase_ != Phase::running || halted_) return;
  for (const auto grant : letter.body().getGrants()) {
    begun_ = Step{grant.getStep()};
    raised_->actors->begin_step(begun_, static_cast<StepKind>(grant.getKind()), grant.getLearningRate(), grant.getLast(), grant.getKeep());
  }
}

void Supervisor::drain(const Letter<schema::Drain>& letter) {
  if (phase_ != Phase::running) return;
  phase_ = Phase::draining;
  phase_since_ = runtime().clock.now();
  final_ = !letter.body().getAnother();
  hand_over_to_ = letter.body().getHandOver();
  raised_->actors->drain_all();
}

void Supervisor::fault_rules(const Letter<schema::FaultRules>& letter) { options_.factory->fault_rules(texts_of(letter.body().getRules())); }

void Supervisor::epoch_end(const Letter<schema::EpochEnd>& letter) {
  if (phase_ == Phase::stopped) return;
  if (phase_ == Phase::clearing || phase_ == Phase::aborting || phase_ == Phase::handing_over) {
    final_ = final_ || letter.body().getFinal();
    return;
  }
  final_ = letter.body().getFinal();
  const bool building = phase_ == Phase::building, joining = phase_ == Phase::joining;
  cause_ = letter.body().getCause();
  phase_ = Phase::aborting;  // an actor that had drained before has said Stopped, and says it once
  phase_since_ = runtime().clock.now();
  if (joining) return tell_stopped();
  if (building) return build_failed_ ? clear() : options_.factory->cancel(epoch(), cause_);  // a build that still runs goes on in built()
  halt(cause_);
  raised_->actors->end_epoch_all(cause_);
}

// --- from the rank's actors ---

void Supervisor::step_report(const Letter<schema::StepReport>& letter) {
  newest_ = letter.where().step;
  tell<schema::StepReport>(coordinator_address, letter.where(), [&](schema::StepReport::Builder body) {
    copy_report(letter.body(), body);
    // All memory is planned and taken before step one: the peak of slots and model together is what was planned.
    if (built_ && raised_ && raised_->body) body.setArenaPeakBytes(std::max(letter.body().getArenaPeakBytes(), raised_->body->arena_bytes()));
  });
}

void Supervisor::fault(const Letter<schema::FaultReport>& letter) {
  if (phase_ == Phase::aborting || phase_ == Phase::handing_over || phase_ == Phase::clearing || phase_ == Phase::stopped)
    return;  // a consequence of the abort
  pass_fault(Rank{letter.body().getRank()}, letter.body().getCause(), letter.body().getSignal());
  halt(letter.body().getCause());
}

void Supervisor::actor_stopped(const Letter<schema::Stopped>& letter) {
  if (phase_ != Phase::draining && phase_ != Phase::aborting) return;
  stopped_.insert(letter.from().actor);
}

void Supervisor::inspection(const Letter<schema::Inspection>& letter) { said_[letter.from().actor] = {letter.body().getText(), letter.body().getWaiting()}; }

void Supervisor::lane_done(const Letter<schema::LaneDone>& letter) {
  if (letter.operation() == build_operation) return built(letter);
  if (letter.operation() == hand_over_operation) {
    handed_over_ = letter.body().getOutcome() == static_cast<std::uint8_t>(Outcome::Kind::ok);
    not_handed_over_ = handed_over_ ? std::string{} : std::string{letter.body().getCause()};
    return clear();
  }
  tell_stopped();
}

void Supervisor::built(const Letter<schema::LaneDone>& letter) {
  built_ = true;
  if (raised_->actors)
    raised_->actors->for_each_actor([this](ActorKind kind, const caf::actor& actor) {
      alive_.emplace(actor.address(), kind);
      monitor(actor);
    });
  const bool ok = letter.body().getOutcome() == static_cast<std::uint8_t>(Outcome::Kind::ok);
  if (!ok) {
    std::string_view cause = std::string_view(letter.body().getCause().cStr());
    if (const std::string lanes = std::string(build_name) + ": "; cause.starts_with(lanes)) cause.remove_prefix(lanes.size());  // said once is enough
    if (phase_ == Phase::aborting) return clear();
    pass_fault(self().rank, fmt::format("rank {} could not build its epoch: {}", self().rank.value(), cause), 0, raised_->restore_lost);
    build_failed_ = true;
    return;  // EpochEnd follows
  }
  if (phase_ == Phase::aborting) {  // ended while it was built
    halt(cause_);
    raised_->actors->end_epoch_all(cause_);
    return;
  }
  phase_ = Phase::running;
  phase_since_ = runtime().clock.now();
  tell<schema::EpochReady>(coordinator_address, Where{epoch(), newest_, {}, {}}, [this](schema::EpochReady::Builder body) {
    const PlanHashes hashes = raised_->body->plan_hashes();
    auto list = body.initPlanHashes(static_cast<unsigned>(hashes.size()));
    unsigned i = 0;
    for (const auto& [communicator, hash] : hashes) {
      list[i].setCommunicator(static_cast<std::uint16_t>(communicator));
      list[i++].setHash(hash);
    }
    body.setArenaBytes(raised_->body->arena_bytes());
    const DeviceInfo device = raised_->body->device();
    body.setPeakFlops(device.peak_flops);
    body.setPeakFlopsFp8(device.peak_flops_fp8);
    body.setDeviceBytes(device.memory_bytes);
  });
}

void Supervisor::join() {
  joined_ = true;
  tell<schema::Join>(coordinator_address, Where{}, [this](schema::Join::Builder body) {
    body.setWorldSize(options_.world_size);
    body.setConfigHash(options_.config_hash);
    body.setHost(options_.host);
    body.setPid(options_.pid);
    body.setRestored(options_.restored.value());
    body.setIncarnation(options_.incarnation.value());
  });
}

void Supervisor::beat(const Letter<schema::Tick>&) {
  if (phase_ == Phase::stopped) return;
  const Nanos now = runtime().clock.now();
  if (joined_ && now - beat_at_ < options_.heartbeat_every / 2) return;  // the timer of the start, after start_supervisor's Tick
  if (!joined_) join();
  beat_at_ = now;
  if (phase_ == Phase::aborting && now - phase_since_ > options_.abort_deadline) {
    const std::string at = oldest().text;
    return options_.events->stuck(self().rank, fmt::format("rank {} did not come to rest within {:.0f} s of the abort; it is still at {}", self().rank.value(),
                                                           std::chrono::duration<double>(options_.abort_deadline).count(), at.empty() ? "nothing known" : at));
  }
  const OldestPending pending = oldest();
  tell<schema::Heartbeat>(coordinator_address, Where{epoch(), newest_, {}, {}}, [&](schema::Heartbeat::Builder body) {
    body.setStep(newest_.value());
    body.setOldest(cut_text(pending.text, 1500));
    body.setOldestNanos(static_cast<std::uint64_t>(pending.age.count()));
    body.setResidentBytes(resident_bytes());
    auto actors = body.initActors(static_cast<unsigned>(said_.size()));
    unsigned i = 0;
    for (const auto& [actor, said] : said_) {
      actors[i].setActor(static_cast<std::uint16_t>(actor));
      actors[i].setText(cut_text(said.text, 600));  // a heartbeat must fit into one frame
      actors[i++].setWaiting(cut_text(said.waiting, 300));
    }
  });
  if (built_ && (phase_ == Phase::running || phase_ == Phase::draining || phase_ == Phase::aborting) && raised_->actors) raised_->actors->inspect_all();
  wake_after(options_.heartbeat_every);
}

// --- the end of an epoch ---

void Supervisor::act() {
  if ((phase_ != Phase::draining && phase_ != Phase::aborting) || !built_) return;
  if (stopped_.size() < RankActors::kinds.size() || !lanes_idle()) return;
  if (phase_ == Phase::draining && hand_over_to_ > 0) return hand_over();
  clear();
}

void Supervisor::hand_over() {
  phase_ = Phase::handing_over;
  phase_since_ = runtime().clock.now();
  post_to_builder("hand over the state", hand_over_operation,
                  [raised = raised_, epoch = epoch(), step = newest_, slot = hand_over_to_ - 1](Stream&) { raised->body->hand_over(epoch, step, slot); });
}

void Supervisor::pass_fault(Rank rank, const std::string& cause, int signal, bool restore_lost) {
  tell<schema::FaultReport>(coordinator_address, Where{epoch(), newest_, {}, {}}, [&](schema::FaultReport::Builder body) {
    body.setRank(rank.value());
    body.setCause(cut_text(cause));
    body.setSignal(signal);
    body.setRestoreLost(restore_lost);
  });
}

void Supervisor::halt(const std::string& cause) {
  if (halted_ || !built_ || !raised_ || !raised_->actors) return;
  halted_ = true;
  raised_->body->abort(cause);
  raised_->actors->halt(cause);
}

void Supervisor::clear() {
  phase_ = Phase::clearing;
  if (raised_->actors) raised_->actors->quit();
  if (alive_.empty()) destroy_body();
}

void Supervisor::gone(const caf::actor_addr& who) {
  const auto found = alive_.find(who);
  if (found == alive_.end()) return;
  const ActorKind kind = found->second;
  alive_.erase(found);
  if (phase_ == Phase::clearing) {
    if (alive_.empty()) destroy_body();
    return;
  }
  const std::string cause = fmt::format("the {} actor of rank {} has ended before it was told to", name_of(kind), self().rank.value());
  if (kind == ActorKind::metrics && restart_metrics(cause)) return;
  stopped_.insert(kind);  // it cannot say so any more
  if (kind == ActorKind::metrics) {
    runtime().log.warning(cause + "; its counters are lost, training goes on");
  } else if (phase_ == Phase::running || phase_ == Phase::draining) {
    pass_fault(self().rank, cause, 0);
    halt(cause);
  }
  act();
}

bool Supervisor::restart_metrics(const std::string& cause) {
  if (phase_ != Phase::running || restarts_ == most_restarts) return false;  // Drain or EpochEnd may have been lost with it: nobody waits for its answer
  ++restarts_;
  const caf::actor fresh = raised_->actors->restart_metrics();
  alive_.emplace(fresh.address(), ActorKind::metrics);
  monitor(fresh);
  runtime().log.warning(cause + "; another one counts from here on");
  return true;
}

void Supervisor::destroy_body() {
  post_to_builder("clear the epoch", clear_operation, [raised = std::exchange(raised_, nullptr)](Stream&) {
    raised->actors.reset();
    raised->body.reset();
  });
}

void Supervisor::rest() {
  phase_ = Phase::joining;
  phase_since_ = runtime().clock.now();
  stopped_.clear();
  said_.clear();
  cause_.clear();
  halted_ = build_failed_ = built_ = handed_over_ = false;
  restarts_ = 0;
  final_ = true;
  hand_over_to_ = 0;
  not_handed_over_.clear();
}

void Supervisor::tell_stopped() {
  const std::string cause = cause_;
  const bool last = final_, handed_over = handed_over_;
  const std::string problem = not_handed_over_;
  if (last)
    phase_ = Phase::stopped;
  else
    rest();
  tell<schema::Stopped>(coordinator_address, Where{epoch(), newest_, {}, {}}, [&](schema::Stopped::Builder body) {
    body.setStep(newest_.value());
    body.setHandedOver(handed_over);
    body.setProblem(cut_text(problem));
  });
  if (last) options_.events->ended(self().rank, cause);
}

bool Supervisor::lanes_idle() const {
  for (std::size_t kind = 0; kind < lane_count; ++kind) {
    const LaneProgress progress = raised_->actors->lane(static_cast<LaneKind>(kind)).progress();
    if (progress.completed < progress.posted) return false;
  }
  return true;
}

OldestPending Supervisor::oldest() const {
  const Nanos now = runtime().clock.now();
  if (phase_ == Phase::joining) return {"the other ranks to join", now - phase_since_};
  if (!built_) return {"its state and communicators", now - phase_since_};
  if (!raised_ || !raised_->actors) return {};
  std::vector<LaneState> lanes;
  for (std::size_t i = 0; i < lane_count; ++i) lanes.push_back({static_cast<LaneKind>(i), raised_->actors->lane(static_cast<LaneKind>(i)).progress()});
  std::vector<WaitingActor> actors;
  for (const auto& [actor, said] : said_) actors.push_back({actor, said.waiting});
  return oldest_pending(lanes, actors, now);
}

void Supervisor::post_to_builder(std::string name, OperationIndex index, std::function<void(Stream&)> work) {
  const Where where{epoch(), newest_, {}, {}};
  LaneOperation operation;
  operation.name = std::move(name);
  operation.where = where;
  operation.index = index;
  operation.work = std::move(work);
  operation.done = [&runtime = runtime(), self = self(), where, index](const Outcome& outcome) {
    troupe::send<schema::LaneDone>(runtime, Heading{self, self, where, index, Nanos{0}, 0}, [&](schema::LaneDone::Builder body) {
      body.setOutcome(static_cast<std::uint8_t>(outcome.kind));
      body.setCause(outcome.cause);
    });
  };
  options_.builder->post(std::move(operation));
}

void start_supervisor(Runtime& runtime, Rank rank) {
  const ActorAddress address{rank, ActorKind::supervisor};
  send<schema::Tick>(runtime, Heading{address, address, {}, {}, Nanos{0}, 0}, [](auto) {});
}

}  // namespace troupe
