#pragma once
#include <map>
#include <memory>
#include <string>

#include "actors/rank_ground.hpp"
#include "src/runtime/actor.hpp"

namespace troupe {

/// The counters of a rank: it sums what the step reports say and writes one line of it to the rank's log when the epoch ends. No part of
/// metrics.jsonl, whose lines the Coordinator joins. Named numbers of a step (MetricBatch) are summed too; when the step's report comes they
/// leave as one MetricBatch, if RankParts::metrics_to names somebody. In this version no actor of ours sends any, and nobody is named.
class Metrics final : public Actor<Metrics> {
 public:
  Metrics(caf::actor_config& config, const ActorSeat& seat, std::shared_ptr<const RankGround> ground);
  caf::behavior make_behavior() override;
  void on_exit() override { ground_.reset(); }

 private:
  void metric_batch(const Letter<schema::MetricBatch>& letter);
  void step_report(const Letter<schema::StepReport>& letter);
  void inspect(const Letter<schema::Inspect>& letter);
  void drain(const Letter<schema::Drain>&) { tell_stopped(); }
  void epoch_end(const Letter<schema::EpochEnd>&) { tell_stopped(); }
  void tell_stopped();
  [[nodiscard]] std::string counts() const;

  std::shared_ptr<const RankGround> ground_;
  std::map<Step, std::map<std::string, double>> open_;  ///< sums of steps that are not reported yet
  std::uint64_t steps_ = 0, committed_ = 0, tokens_ = 0, gathered_ = 0, reduced_ = 0, waited_nanos_ = 0;
  Step last_;
  bool stopped_told_ = false;
};

}  // namespace troupe
