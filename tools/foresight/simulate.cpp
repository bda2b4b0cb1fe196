#include "tools/foresight/simulate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "src/metrics/console_line.hpp"
#include "src/trace/ring_tracer.hpp"

namespace troupe {
namespace {

Nanos micros(double us) { return Nanos{std::llround(us * 1e3)}; }

/// Of a lane of rank 0 during the steps first … last.
double busy_seconds(const Simulation& s, LaneKind lane) {
  Nanos busy{0};
  for (const TracedSpan& span : s.outcome.spans) {
    if (span.rank == Rank{0} && span.track == name_of(lane) && span.step >= s.first && span.step <= s.last) busy += span.ended - span.started;
  }
  return seconds_of(busy);
}

/// The steps behind the first two, which begin with nothing gathered and nothing loaded.
Result<void> look_at_steps(Simulation& s) {
  const std::vector<SimulatedStep>& steps = s.outcome.steps;
  if (steps.size() < 3) return Error{fmt::format("{} steps were simulated; at least 3 are needed to see one", steps.size())};
  s.first = steps[2].step;
  s.last = steps.back().step;
  const auto count = static_cast<double>(steps.size() - 2);
  s.step_seconds = seconds_of(steps.back().at - steps[1].at) / count;
  s.compute_busy = busy_seconds(s, LaneKind::compute) / (s.step_seconds * count);
  s.communication_busy = busy_seconds(s, LaneKind::comm) / (s.step_seconds * count);
  s.overlap = trace_overlap(s.outcome.spans, s.first, s.last);
  const TrainingOptions& o = s.estimate.job.options;
  s.tokens_per_second = static_cast<double>(o.batch.tokens()) * o.micro_batches / s.step_seconds;
  const DeviceModel& device = s.estimate.cluster.device;
  const double peak = device.gpu() ? device.bf16_tflops * 1e12 : 0;  // as a run counts it: a CPU has no data sheet's rate
  const auto part = [&](double flops) { return peak > 0 ? flops * s.tokens_per_second / peak : std::numeric_limits<double>::quiet_NaN(); };
  s.mfu = part(s.estimate.flops_per_token);
  s.mfu_causal = part(s.estimate.flops_per_token_causal);
  return {};
}

RingTracerOptions rings(const SimulatedJobOptions& job, const SimulationOptions& options) {
  RingTracerOptions made;
  made.ranks.clear();
  for (std::uint32_t r = 0; r < job.traced_ranks; ++r) made.ranks.emplace_back(r);
  made.events = std::min<std::size_t>(std::size_t{1} << 18, (job.plans->longest() * 24 + 1024) * options.steps);
  return made;
}

}  // namespace

OperationCosts operation_costs(const Estimate& e, const SimulationOptions& options) {
  OperationCosts costs({e.training, e.job.options, options.cluster, state_bytes(e.job, e.training)});
  costs.correct(options.factors);
  return costs;
}

SimulatedJobOptions simulated_job_of(const Estimate& e, const JobConfig& config, const OperationCosts& costs, bool full) {
  SimulatedJobOptions job;
  job.plans = std::make_shared<const PlanSet>(e.job.plans);
  job.slots = e.job.slots;
  job.units = static_cast<std::uint32_t>(e.training.units.size());
  job.micro_batches = e.job.options.micro_batches;
  job.reduce_last = e.job.options.sums_micro_batches();
  job.step_in_backward = e.job.options.step_in_backward;
  job.shards = full ? e.job.options.world : std::min(e.job.options.world, 2U);
  job.replicas = full ? e.job.options.replicas : std::min(e.job.options.replicas, 2U);
  job.cost = [costs](const PlannedOperation& operation) { return costs.of(operation); };
  job.contention = e.cluster.network.contention;
  job.letter = config.runtime.run_ahead > 0 && e.cluster.device.gpu() ? Nanos{0} : micros(e.cluster.device.letter_us);
  job.one_order = e.cluster.device.one_order;
  job.cores = e.cluster.device.capacity();
  job.ranks_per_host = static_cast<std::uint32_t>(e.cluster.network.ranks_per_host);
  return job;
}

Result<Simulation> simulate_run(const JobConfig& config, const SimulationOptions& options) {
  const auto began = std::chrono::steady_clock::now();
  auto estimate = estimate_run(config, options.ranks, options.cluster);
  if (!estimate) return estimate.error();
  if (estimate->unbuilt.any())
    return Error{"only what is built can be simulated: " + (estimate->not_built.empty() ? std::string{} : estimate->not_built.front())};
  Simulation s;
  s.estimate = std::move(*estimate);
  SimulatedJobOptions job = simulated_job_of(s.estimate, config, operation_costs(s.estimate, options), options.ranks <= options.unfolded);
  s.simulated = job.shards * job.replicas;
  if (s.simulated < options.ranks && job.cores > 0)
    return Error{fmt::format("{} ranks share the cores of their hosts, so that none stands for another: raise --unfolded to simulate them all", options.ranks)};
  job.last = Step{options.steps};
  job.keep_all_spans = options.keep_all_spans;
  std::optional<RingTracer> tracer;
  if (!options.trace.empty()) {
    job.traced_ranks = std::min(options.traced_ranks, s.simulated);
    job.tracer = &tracer.emplace(rings(job, options));
  }
  if (options.alter) options.alter(job);
  s.outcome = simulate_job(job);
  if (s.outcome.end.how != RunEnd::How::finished) return Error{"the simulated run did not come to its end: " + s.outcome.end.report};
  if (!s.outcome.job->ok) return Error{"the simulated run failed: " + s.outcome.job->cause};
  if (!s.outcome.findings.empty()) return Error{"the simulated run broke a rule: " + s.outcome.findings};
  if (auto looked = look_at_steps(s); !looked) return looked.error();
  if (tracer) {
    if (auto written = tracer->write(options.trace); !written) return written.error();
  }
  s.wall_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return s;
}

std::string simulation_text(const Simulation& s) {
  const TrainingOptions& o = s.estimate.job.options;
  std::string text = fmt::format("model {}: {} micro-batch{} of {} × {} tokens a rank and step; dp_replicate {} × dp_shard {} = {} ranks of {}\n",
                                 s.estimate.job.model.name, o.micro_batches, o.micro_batches == 1 ? "" : "es", o.batch.rows, o.batch.seq_len, o.replicas,
                                 o.world, s.estimate.ranks, s.estimate.cluster.device.name);
  text += s.simulated == s.estimate.ranks
              ? fmt::format("all {} ranks were simulated", s.simulated)
              : fmt::format("{} ranks were simulated for all {}: they have one plan and the same durations, so the others do the same at the same times",
                            s.simulated, s.estimate.ranks);
  text += fmt::format("; steps {} to {} looked at; {} letters, {:.1f} s\n", s.first.value(), s.last.value(), s.outcome.letters, s.wall_seconds);
  text += fmt::format("  step                           {:>12.3f} ms\n", 1e3 * s.step_seconds);
  text += fmt::format("  tokens/s of a rank             {:>12}\n", with_thousands(s.tokens_per_second, 0));
  text += fmt::format("  tokens/s of all                {:>12}\n", with_thousands(s.tokens_per_second * s.estimate.ranks, 0));
  if (!std::isnan(s.mfu)) text += fmt::format("  MFU                            {:>12.1f} % ({:.1f} % causal)\n", 100 * s.mfu, 100 * s.mfu_causal);
  text += fmt::format("  compute lane busy              {:>12.1f} % (the rest is the bubble: {:.3f} ms a step)\n", 100 * s.compute_busy,
                      1e3 * s.step_seconds * (1 - s.compute_busy));
  text += fmt::format("  collectives' lane busy         {:>12.1f} %\n", 100 * s.communication_busy);
  text += fmt::format("  gathers under forwards         {:>12.1f} % of their time\n", 100 * s.overlap.gathers_under_forwards);
  text += fmt::format("  reduces under backwards        {:>12.1f} % of their time\n", 100 * s.overlap.reduces_under_backwards);
  if (!s.estimate.fits())
    text += fmt::format("  this does not fit: {:.2f} GiB of {:.2f}\n", static_cast<double>(s.estimate.memory.device()) / 1073741824.0,
                        s.estimate.cluster.device.memory_gib);
  return text;
}

std::string simulation_json(const Simulation& s) {
  const auto number = [](double value) { return std::isnan(value) ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(value); };
  const nlohmann::ordered_json out{{"model", s.estimate.job.model.name},
                                   {"ranks", s.estimate.ranks},
                                   {"ranks_simulated", s.simulated},
                                   {"device", s.estimate.cluster.device.name},
                                   {"step_seconds", s.step_seconds},
                                   {"tokens_per_second", s.tokens_per_second},
                                   {"mfu", number(s.mfu)},
                                   {"mfu_causal", number(s.mfu_causal)},
                                   {"compute_busy", s.compute_busy},
                                   {"communication_busy", s.communication_busy},
                                   {"gathers_under_forwards", s.overlap.gathers_under_forwards},
                                   {"reduces_under_backwards", s.overlap.reduces_under_backwards},
                                   {"letters", s.outcome.letters},
                                   {"wall_seconds", s.wall_seconds}};
  return out.dump(2) + "\n";
}

}  // namespace troupe
