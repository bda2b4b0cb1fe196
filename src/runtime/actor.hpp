#pragma once
#include <caf/event_based_actor.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "src/runtime/letter_message.hpp"
#include "src/runtime/runtime.hpp"
#include "src/runtime/send.hpp"

namespace troupe {

/// Where an actor sits: what every actor is given first. `epoch` 0: not bound to one yet.
struct ActorSeat {
  Runtime& runtime;
  ActorAddress self;
  EpochId epoch;
};

/// What an actor did with its letters, for Inspect and tests.
struct LetterCounts {
  std::uint64_t handled = 0;
  std::uint64_t of_older_epochs = 0;  ///< dropped
  std::uint64_t unknown = 0;          ///< no handler for its kind: dropped
};

/// What all actors share, whatever their kind. Runs on CAF's workers, one letter at a time; nothing here blocks.
class ActorBase : public caf::event_based_actor {
 public:
  ActorBase(caf::actor_config& config, const ActorSeat& seat);
  ~ActorBase() override;
  [[nodiscard]] const char* name() const override;
  [[nodiscard]] const LetterCounts& letters() const noexcept { return counts_; }

 protected:
  [[nodiscard]] Runtime& runtime() const noexcept { return seat_.runtime; }
  [[nodiscard]] ActorAddress self() const noexcept { return seat_.self; }
  [[nodiscard]] ActorAddress neighbour(ActorKind kind) const noexcept { return {seat_.self.rank, kind}; }  ///< of the same rank
  [[nodiscard]] EpochId epoch() const noexcept { return seat_.epoch; }
  /// From now on letters of older epochs are dropped. For actors that outlive an epoch (Supervisor, Coordinator).
  void enter_epoch(EpochId epoch) noexcept { seat_.epoch = epoch; }

  /// Sends a letter with this actor as its writer. Never blocks.
  template <class T, class Fill>
  void tell(const ActorAddress& to, const Where& where, Fill&& fill, Lease lease = {}, OperationIndex operation = {}) {
    troupe::send<T>(seat_.runtime, Heading{to, seat_.self, where, operation, Nanos{0}, 0}, std::forward<Fill>(fill), std::move(lease));
  }
  /// A FaultReport about `rank` to the own Supervisor; the Supervisor's go to the Coordinator.
  void report_fault(const std::string& cause, Rank rank);
  void report_fault(const std::string& cause) { report_fault(cause, seat_.self.rank); }
  /// Posts a Tick to this actor after `delay` of the Runtime's clock. There is no cancel: check on arrival.
  void wake_after(Nanos delay);
  /// "GradientReady of step 3, unit 1", or "none yet".
  [[nodiscard]] std::string last_letter() const;

  /// The one place where letters of older epochs end. False: drop it.
  [[nodiscard]] bool admit(const schema::Envelope::Reader& envelope, LetterKind kind);
  [[nodiscard]] Nanos begin_span() const { return seat_.runtime.tracer ? seat_.runtime.clock.now() : Nanos{0}; }
  void end_span(const schema::Envelope::Reader& envelope, LetterKind kind, Nanos started) const;
  /// A handler threw; `cause` says which, of what letter, and the exception's text. The Coordinator, who reports to nobody, overrides it.
  virtual void handler_failed(const std::string& cause) { report_fault(cause); }
  /// Call inside a catch block: hands the exception's text to handler_failed().
  void caught(LetterKind kind, const Where& where);

 private:
  ActorSeat seat_;
  LetterCounts counts_;
  std::optional<LetterKind> last_kind_;  ///< but for Inspect
  Where last_where_;
};

/// Base of every actor. Derived lists its handlers in `make_behavior`: `return {on(&Derived::batch_ready), …}`; they take
/// `const Letter<T>&` and only note what happened. After each of them `act()` runs, where all decisions are, and then `settle()`,
/// which a common base of several actors may use. An exception in any of the three becomes a FaultReport with its text.
template <class Derived>
class Actor : public ActorBase {
 public:
  using ActorBase::ActorBase;
  void act() {}
  void settle() {}

 protected:
  template <class Owner, class T>
  auto on(void (Owner::*handler)(const Letter<T>&)) {
    return [this, handler](const Letter<T>& letter) {
      const schema::Envelope::Reader envelope = letter.parcel()->envelope();
      if (!admit(envelope, Body<T>::kind)) return;
      const Nanos started = begin_span();
      auto& derived = static_cast<Derived&>(*this);
      try {
        (static_cast<Owner&>(derived).*handler)(letter);
        derived.act();
        derived.settle();
      } catch (...) {
        caught(Body<T>::kind, letter.where());
      }
      end_span(envelope, Body<T>::kind, started);
    };
  }
};

}  // namespace troupe
