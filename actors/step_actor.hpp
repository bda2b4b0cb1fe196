#pragma once
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "actors/rank_ground.hpp"
#include "src/base/cut_text.hpp"
#include "src/runtime/actor.hpp"
#include "src/runtime/edge_waits.hpp"
#include "src/runtime/held_leases.hpp"
#include "src/runtime/lane_port.hpp"
#include "src/runtime/plan_cursor.hpp"
#include "src/runtime/slot_table.hpp"

namespace troupe {

/// What DataLoader, Compute, Sharding and Checkpoint have in common: a place in the plan, the slots of the one edge that they produce,
/// leases that came with letters, and the end of an epoch. Derived::act posts what is ready; the rest is here.
template <class Derived>
class StepActor : public Actor<Derived> {
 public:
  /// What this actor stands on goes with it, not with the last handle to it.
  void on_exit() override {
    held_.close();
    ground_.reset();
  }
  /// After each letter: answers Stopped once the epoch's end was asked for and this actor is quiet.
  void settle() {
    if (ending_ == Ending::no || stopped_told_ || slots_.in_use() > 0 || held_.size() > 0) return;
    for (const LanePort& port : ports_) {
      if (port.in_flight() > 0) return;
    }
    if (ending_ == Ending::drain && !plan_.idle()) return;
    stopped_told_ = true;
    this->template tell<schema::Stopped>(this->neighbour(ActorKind::supervisor), Where{this->epoch(), last_finished_, {}, {}},
                                         [&](auto body) { body.setStep(last_finished_.value()); });
  }

 protected:
  StepActor(caf::actor_config& config, const ActorSeat& seat, std::shared_ptr<const RankGround> ground, EdgeKind produces, const std::vector<LaneKind>& lanes)
      : Actor<Derived>(config, seat),
        ground_(std::move(ground)),
        plan_(parts().plans, seat.self.actor, parts().first_step),
        slots_(seat.runtime, {produces, seat.self, seat.epoch, ground_->memory.slots(produces), parts().poison_freed_slots}),
        produces_(produces) {
    for (const LaneKind lane : lanes) ports_.emplace_back(seat.runtime, seat.self, seat.epoch, ground_->lane(lane), lane);
  }

  // Handlers: they note facts.
  void step_begin(const Letter<schema::StepBegin>& letter) {
    plan_.begin(letter.where().step, static_cast<StepKind>(letter.body().getKind()));
    derived().began(letter);
  }
  void lane_done(const Letter<schema::LaneDone>& letter) {
    const auto body = letter.body();
    port(static_cast<LaneKind>(body.getLane())).completed();
    const auto outcome = static_cast<Outcome::Kind>(body.getOutcome());
    const Step step = letter.where().step;
    const bool handled = outcome == Outcome::Kind::failed && derived().tolerates(step, letter.operation(), body.getCause().cStr());
    if (outcome == Outcome::Kind::ok || handled) {
      plan_.fact(step, letter.operation());
      if (plan_.finished(step)) last_finished_ = std::max(last_finished_, step);
      if (outcome == Outcome::Kind::ok) derived().completed(step, letter.operation());
      return;
    }
    plan_.stop(body.getCause().cStr());
    if (outcome == Outcome::Kind::failed && ending_ != Ending::abort) this->report_fault(body.getCause().cStr());
  }
  void slot_home(const Letter<schema::SlotHome>& letter) { slots_.home(SlotIndex{letter.body().getSlot()}, letter.body().getGeneration()); }
  void inspect(const Letter<schema::Inspect>& letter) {
    std::string text = plan_.position() + "; " + slots_.describe();
    for (const LanePort& port : ports_) {
      if (const std::string lane = port.describe(); !lane.empty()) text += "; " + lane;
    }
    text += "; last letter " + this->last_letter();
    this->template tell<schema::Inspection>(letter.from(), Where{this->epoch(), last_finished_, {}, {}}, [&](auto body) {
      body.setText(cut_text(text));
      body.setWaiting(cut_text(waits(), 1000));
      body.setLeasesOut(slots_.in_use());
    });
  }
  void drain(const Letter<schema::Drain>&) {
    if (ending_ == Ending::no) ending_ = Ending::drain;
  }
  void epoch_end(const Letter<schema::EpochEnd>& letter) {
    ending_ = Ending::abort;
    plan_.stop(letter.body().getCause().cStr());
    held_.close();
  }

  // What Derived may override.
  void began(const Letter<schema::StepBegin>&) {}
  void completed(Step, OperationIndex) {}                                     ///< an own operation is done, ok
  bool tolerates(Step, OperationIndex, const std::string&) { return false; }  ///< true: this failure is no fault; the plan goes on

  // What Derived::act uses.
  [[nodiscard]] const RankParts& parts() const { return ground_->parts; }
  [[nodiscard]] std::optional<PlanCursor::Next> ready() {
    return plan_.next_ready([&](EdgeKind) { return slots_.any_free(); });
  }
  /// Notes that another actor's operation is done; its slot's lease, if any, is kept for the readers.
  template <class T>
  void note_fact(const Letter<T>& letter) {
    held_.keep(letter.where().step, letter.operation(), letter.lease());
    plan_.fact(letter.where().step, letter.operation());
  }
  /// Keeps a lease of the own edge for a later operation of this actor that reads it.
  void hold(const PlanCursor::Next& next, const Lease& lease) { held_.keep(next.step, next.index, lease); }
  /// The slot of `edge` that the operation reads, held until it is done; handed over if it is the last reader. Empty if it reads none.
  [[nodiscard]] std::span<std::byte> read(const PlanCursor::Next& next, EdgeKind edge, LanePort::Work& work) {
    for (const OperationIndex producer : next.operation->reads) {
      if ((*next.plan)[producer].takes != edge) continue;
      const auto& last = next.operation->last_reads;
      const bool is_last = std::find(last.begin(), last.end(), producer) != last.end();
      Lease lease = is_last ? held_.take(next.step, producer) : held_.peek(next.step, producer);
      if (!lease) throw std::logic_error(next.operation->name() + " reads a slot of " + name_of(edge) + " whose lease is not here");
      work.accesses.push_back({name_of(edge), this->self().rank.value(), lease.slot(), false});
      work.leases.push_back(lease);
      return lease.bytes();
    }
    return {};
  }
  /// Takes a slot of the own edge for the operation's output.
  [[nodiscard]] Lease write(LanePort::Work& work) {
    Lease lease = slots_.take();
    work.accesses.push_back({name_of(produces_), this->self().rank.value(), lease.slot(), true});
    work.leases.push_back(lease);
    return lease;
  }
  [[nodiscard]] LanePort& port(LaneKind kind) {
    for (LanePort& candidate : ports_) {
      if (candidate.kind() == kind) return candidate;
    }
    throw std::logic_error(std::string(this->name()) + " has no lane " + name_of(kind));
  }
  void post(const PlanCursor::Next& next, LanePort::Work work) { port(next.operation->lane).post(next, std::move(work)); }
  /// A closure that sends T to an actor of this rank: what leaves when the operation is done. Runs on the lane's completion thread.
  template <class T, class Fill>
  [[nodiscard]] std::function<void()> sends(ActorKind to, const PlanCursor::Next& next, Fill fill, Lease lease = {}) const {
    return [runtime = &this->runtime(), heading = Heading{this->neighbour(to), this->self(), next.where(this->epoch()), next.index, Nanos{0}, 0},
            fill = std::move(fill), lease = std::move(lease)] { troupe::send<T>(*runtime, heading, fill, lease); };
  }

  PlanCursor& plan() noexcept { return plan_; }
  /// At the end of Derived::act: whether the lane stands idle, and for want of which edge.
  void note_idle(EdgeWaits& waits, LaneKind lane) {
    waits.note(port(lane).in_flight() == 0 ? plan_.starved_of(lane) : std::nullopt, this->runtime().clock.now());
  }

 private:
  enum class Ending : std::uint8_t { no, drain, abort };
  Derived& derived() noexcept { return static_cast<Derived&>(*this); }
  /// What holds this actor up; empty: nothing. At the end of an epoch also slots that are still out: whoever has them is at fault.
  [[nodiscard]] std::string waits() const {
    if (ending_ == Ending::no || (ending_ == Ending::drain && !plan_.idle())) return plan_.waiting();
    if (slots_.in_use() > 0) return "its slots to come home (" + slots_.describe() + ")";
    return held_.size() > 0 ? std::to_string(held_.size()) + " leases that it still holds" : std::string{};
  }

  std::shared_ptr<const RankGround> ground_;
  PlanCursor plan_;
  SlotTable slots_;
  EdgeKind produces_;
  HeldLeases held_;
  std::vector<LanePort> ports_;
  Ending ending_ = Ending::no;
  bool stopped_told_ = false;
  Step last_finished_;
};

}  // namespace troupe
