#include "src/runtime/actor.hpp"

#include <exception>

#include "src/base/cut_text.hpp"
#include "src/runtime/actor_row.hpp"
#include "src/runtime/describe.hpp"

namespace troupe {
namespace {

std::string text_of_current_exception() {
  try {
    throw;
  } catch (const std::exception& problem) {
    return problem.what();
  } catch (...) {
    return "an exception of an unknown type";
  }
}

}  // namespace

ActorBase::ActorBase(caf::actor_config& config, const ActorSeat& seat) : caf::event_based_actor(config), seat_(seat) {
  set_default_handler([this](caf::scheduled_actor*, caf::message_view&) -> caf::result<caf::message> {
    ++counts_.unknown;
    return caf::message{};
  });
}
ActorBase::~ActorBase() = default;

const char* ActorBase::name() const { return name_of(seat_.self.actor); }

bool ActorBase::admit(const schema::Envelope::Reader& envelope, LetterKind kind) {
  const EpochId of_letter{envelope.getWhere().getEpoch()};
  if (of_letter != EpochId{0} && of_letter < seat_.epoch) {
    ++counts_.of_older_epochs;
    return false;
  }
  ++counts_.handled;
  if (kind == LetterKind::INSPECT) return true;  // whoever asks for the last letter wants the one before the question
  last_kind_ = kind;
  last_where_ = where_of(envelope);
  return true;
}

void ActorBase::end_span(const schema::Envelope::Reader& envelope, LetterKind kind, Nanos started) const {
  Tracer* const tracer = seat_.runtime.tracer;
  if (!tracer) return;
  const Where where = where_of(envelope);
  if (envelope.getFlow() != 0)  // 0: its writer has no tracer, and an arrow no start
    tracer->letter_received(seat_.self.rank, actor_row(seat_.self.actor), name_of(kind), envelope.getFlow(), where, started);
  tracer->span({seat_.self.rank, actor_row(seat_.self.actor), name_of(kind), where, Nanos{static_cast<Nanos::rep>(envelope.getSentNanos())}, started,
                seat_.runtime.clock.now(), "ok"});
}

void ActorBase::caught(LetterKind kind, const Where& where) {
  const std::string who =
      seat_.self.rank == launcher_rank ? std::string("the ") + name() : std::string(name()) + " of rank " + std::to_string(seat_.self.rank.value());
  handler_failed(who + ", handling " + name_of(kind) + " of " + describe(where) + ": " + text_of_current_exception());
}

void ActorBase::report_fault(const std::string& cause, Rank rank) {
  const ActorAddress to = seat_.self.actor == ActorKind::supervisor ? coordinator_address : neighbour(ActorKind::supervisor);
  tell<schema::FaultReport>(to, Where{seat_.epoch, {}, {}, {}}, [&](auto body) {
    body.setRank(rank.value());
    body.setCause(cut_text(cause));
  });
}

void ActorBase::wake_after(Nanos delay) {
  Runtime* const runtime = &seat_.runtime;
  seat_.runtime.clock.after(delay,
                            [runtime, self = seat_.self] { troupe::send<schema::Tick>(*runtime, Heading{self, self, {}, {}, Nanos{0}, 0}, [](auto) {}); });
}

std::string ActorBase::last_letter() const { return last_kind_ ? std::string(name_of(*last_kind_)) + " of " + describe(last_where_) : "none yet"; }

}  // namespace troupe
