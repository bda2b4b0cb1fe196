#include "actors/metrics.hpp"

#include <fmt/format.h>

#include <utility>

namespace troupe {

Metrics::Metrics(caf::actor_config& config, const ActorSeat& seat, std::shared_ptr<const RankGround> ground)
    : Actor(config, seat), ground_(std::move(ground)) {}

caf::behavior Metrics::make_behavior() {
  return {on(&Metrics::metric_batch), on(&Metrics::step_report), on(&Metrics::inspect), on(&Metrics::drain), on(&Metrics::epoch_end)};
}

void Metrics::metric_batch(const Letter<schema::MetricBatch>& letter) {
  const Step step = letter.where().step;
  if (step <= last_) return;  // reported already: a number that comes late belongs to nothing
  for (const auto entry : letter.body().getEntries()) open_[step][entry.getName().cStr()] += entry.getValue();
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
  std::map<std::string, double> sums = std::move(open_[step]);
  open_.erase(open_.begin(), open_.upper_bound(step));
  sums["local_tokens"] += static_cast<double>(report.getLocalTokens());
  sums["step_seconds"] += static_cast<double>(report.getStepNanos()) * 1e-9;
  sums["wait_batch_seconds"] += static_cast<double>(report.getWaitBatchNanos()) * 1e-9;
  sums["bytes_gathered"] += static_cast<double>(report.getBytesGathered());
  sums["bytes_reduced"] += static_cast<double>(report.getBytesReduced());
  const ActorAddress to = ground_->parts.metrics_to;
  if (to.actor == ActorKind::none) return;
  tell<schema::MetricBatch>(to, Where{epoch(), step, {}, {}}, [&](auto body) {
    auto entries = body.initEntries(static_cast<unsigned>(sums.size()));
    unsigned i = 0;
    for (const auto& [name, value] : sums) {
      entries[i].setName(name);
      entries[i++].setValue(value);
    }
  });
}

void Metrics::inspect(const Letter<schema::Inspect>& letter) {
  tell<schema::Inspection>(letter.from(), Where{epoch(), last_, {}, {}}, [&](auto body) { body.setText(counts() + "; last letter " + last_letter()); });
}

std::string Metrics::counts() const {
  return fmt::format("{} steps, {} committed, {} tokens, {} bytes gathered, {} reduced, {:.3f} s without a batch", steps_, committed_, tokens_, gathered_,
                     reduced_, static_cast<double>(waited_nanos_) * 1e-9);
}

void Metrics::tell_stopped() {
  if (std::exchange(stopped_told_, true)) return;
  runtime().log.info("rank " + std::to_string(self().rank.value()) + ", epoch " + std::to_string(epoch().value()) + ": " + counts());
  tell<schema::Stopped>(neighbour(ActorKind::supervisor), Where{epoch(), last_, {}, {}}, [&](auto body) { body.setStep(last_.value()); });
}

}  // namespace troupe
