#include "actors/metrics.hpp"

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
  tell<schema::Inspection>(letter.from(), Where{epoch(), last_, {}, {}}, [&](auto body) {
    body.setText("steps " + std::to_string(steps_) + ", committed " + std::to_string(committed_) + ", tokens " + std::to_string(tokens_) + "; last letter " +
                 last_letter());
  });
}

void Metrics::tell_stopped() {
  if (std::exchange(stopped_told_, true)) return;
  tell<schema::Stopped>(neighbour(ActorKind::supervisor), Where{epoch(), last_, {}, {}}, [&](auto body) { body.setStep(last_.value()); });
}

}  // namespace troupe
