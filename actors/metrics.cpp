#include "actors/metrics.hpp"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "actors/step_observer.hpp"

namespace troupe {
namespace {

/// The actors of a rank that hold slots or leases.
constexpr std::array holders{ActorKind::data_loader, ActorKind::compute, ActorKind::sharding, ActorKind::checkpoint};

}  // namespace

Metrics::Metrics(caf::actor_config& config, const ActorSeat& seat, std::shared_ptr<const RankGround> ground)
    : Actor(config, seat), ground_(std::move(ground)) {}

caf::behavior Metrics::make_behavior() {
  return {on(&Metrics::step_report), on(&Metrics::inspect), on(&Metrics::inspection), on(&Metrics::drain), on(&Metrics::epoch_end)};
}

void Metrics::step_report(const Letter<schema::StepReport>& letter) {
  const auto report = letter.body();
  const Step step = letter.where().step;
  ++steps_;
  if (report.getOutcome() == schema::StepOutcome::COMMIT) ++committed_;
  tokens_ += report.getLocalTokens();
  gathered_ += report.getBytesGathered();
  reduced_ += report.getBytesReduced();
  waited_nanos_ += report.getWaitBatchNanos();
  last_ = step;
  StepObserver* const observer = ground_->parts.observer.get();
  if (observer == nullptr) return;
  observer->step_ended(step);
  if (!observer->wants_holders(step)) return;
  asked_ = step;
  answers_.clear();
  for (const ActorKind actor : holders) tell<schema::Inspect>(neighbour(actor), Where{epoch(), step, {}, {}}, [](auto) {});
}

void Metrics::inspection(const Letter<schema::Inspection>& letter) {
  answers_.emplace_back(letter.from().actor, letter.body().getText());
  if (answers_.size() == holders.size()) ground_->parts.observer->holders(asked_, answers_);
}

void Metrics::inspect(const Letter<schema::Inspect>& letter) {
  tell<schema::Inspection>(letter.from(), Where{epoch(), last_, {}, {}}, [&](auto body) { body.setText(counts() + "; last letter " + last_letter()); });
}

std::string Metrics::counts() const {
  return fmt::format("{} steps, {} committed, {} tokens, {} bytes gathered, {} reduced, {:.3f} s without a batch", steps_, committed_, tokens_, gathered_,
                     reduced_, static_cast<double>(waited_nanos_) * 1e-9);
}

/// Nothing is given back before the epoch's end, so what is in use now is the peak.
void Metrics::tell_memory() const {
  const Device* const device = ground_->parts.device;
  const MemoryReading reading = device != nullptr ? device->measure_memory() : MemoryReading{};
  if (reading.in_use == 0) return;
  const auto gibibytes = [](std::size_t bytes) { return static_cast<double>(bytes) / 1073741824.0; };
  const std::size_t planned = device->allocated_bytes(Placement::device);
  runtime().log.info(fmt::format(
      "memory: at most {:.3f} GiB of the device in use: {:.3f} planned, {:.3f} kernels' scratch, {:.3f} CUDA's and its libraries' own",
      gibibytes(reading.in_use), gibibytes(planned), gibibytes(reading.scratch), gibibytes(reading.in_use) - gibibytes(planned) - gibibytes(reading.scratch)));
}

void Metrics::handler_failed(const std::string& cause) {
  runtime().log.warning(cause);
  quit();
}

void Metrics::tell_stopped() {
  if (std::exchange(stopped_told_, true)) return;
  runtime().log.info("rank " + std::to_string(self().rank.value()) + ", epoch " + std::to_string(epoch().value()) + ": " + counts());
  tell_memory();
  tell<schema::Stopped>(neighbour(ActorKind::supervisor), Where{epoch(), last_, {}, {}}, [&](auto body) { body.setStep(last_.value()); });
}

}  // namespace troupe
