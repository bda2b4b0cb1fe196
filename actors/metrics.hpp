#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actors/rank_ground.hpp"
#include "src/runtime/actor.hpp"

namespace troupe {

/// The counters of a rank: it sums what the step reports say and writes one line of it to the rank's log when the epoch ends. No part of
/// metrics.jsonl, whose lines the Coordinator joins. Tells the rank's StepObserver of each step, and asks the others by Inspect for what
/// they hold when that wants to know. Nothing depends on it: an exception in a handler ends this actor alone, and the Supervisor starts another.
class Metrics final : public Actor<Metrics> {
 public:
  Metrics(caf::actor_config& config, const ActorSeat& seat, std::shared_ptr<const RankGround> ground);
  caf::behavior make_behavior() override;
  void on_exit() override { ground_.reset(); }

 private:
  void step_report(const Letter<schema::StepReport>& letter);
  void inspect(const Letter<schema::Inspect>& letter);
  void inspection(const Letter<schema::Inspection>& letter);
  void drain(const Letter<schema::Drain>&) { tell_stopped(); }
  void epoch_end(const Letter<schema::EpochEnd>&) { tell_stopped(); }
  void handler_failed(const std::string& cause) override;
  void tell_memory() const;
  void tell_stopped();
  [[nodiscard]] std::string counts() const;

  std::shared_ptr<const RankGround> ground_;
  Step asked_;  ///< whose memory the answers are about
  std::vector<std::pair<ActorKind, std::string>> answers_;
  std::uint64_t steps_ = 0, committed_ = 0, tokens_ = 0, gathered_ = 0, reduced_ = 0, waited_nanos_ = 0;
  Step last_;
  bool stopped_told_ = false;
};

}  // namespace troupe
