#include "actors/letter_values.hpp"

#include <algorithm>

namespace troupe {

std::vector<ActorPulse> actors_of(schema::Heartbeat::Reader body) {
  std::vector<ActorPulse> actors;
  for (const auto actor : body.getActors()) actors.push_back({static_cast<ActorKind>(actor.getActor()), actor.getText(), actor.getWaiting()});
  return actors;
}

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
  report.float8_saturated = body.getFloat8Saturated();
  report.float8_non_finite = body.getFloat8NonFinite();
  report.evaluation_loss = body.getEvaluationLoss();
  report.evaluation_tokens = body.getEvaluationTokens();
  report.evaluation_time = Nanos{static_cast<Nanos::rep>(body.getEvaluationNanos())};
  const auto losses = body.getSourceLosses();
  const auto tokens = body.getSourceTokens();
  for (std::uint32_t i = 0; i < std::min(losses.size(), tokens.size()); ++i) report.sources.push_back({losses[i], tokens[i]});
  return report;
}

void copy_report(schema::StepReport::Reader from, schema::StepReport::Builder to) {
  to.setOutcome(from.getOutcome());
  to.setLoss(from.getLoss());
  to.setGradNorm(from.getGradNorm());
  to.setLearningRate(from.getLearningRate());
  to.setTokens(from.getTokens());
  to.setLocalTokens(from.getLocalTokens());
  to.setDigest(from.getDigest());
  to.setStepNanos(from.getStepNanos());
  to.setArenaPeakBytes(from.getArenaPeakBytes());
  to.setBytesGathered(from.getBytesGathered());
  to.setBytesReduced(from.getBytesReduced());
  to.setWaitBatchNanos(from.getWaitBatchNanos());
  to.setKind(from.getKind());
  to.setNonFinite(from.getNonFinite());
  to.setOwnLoss(from.getOwnLoss());
  to.setWaitWeightsNanos(from.getWaitWeightsNanos());
  to.setWaitGradientsNanos(from.getWaitGradientsNanos());
  to.setWaitSnapshotsNanos(from.getWaitSnapshotsNanos());
  to.setFloat8Saturated(from.getFloat8Saturated());
  to.setFloat8NonFinite(from.getFloat8NonFinite());
  to.setEvaluationLoss(from.getEvaluationLoss());
  to.setEvaluationTokens(from.getEvaluationTokens());
  to.setEvaluationNanos(from.getEvaluationNanos());
  if (from.getSourceLosses().size() == 0) return;
  to.setSourceLosses(from.getSourceLosses());
  to.setSourceTokens(from.getSourceTokens());
}

}  // namespace troupe
