#include "tools/foresight/fault_forecast.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "src/metrics/console_line.hpp"

namespace troupe {
namespace {

Nanos nanos(double of) { return Nanos{std::llround(of * 1e9)}; }

/// Where a policy keeps the state, and what it sets.
struct PolicyKind {
  const char* name;
  bool memory;
  bool waits;  ///< for the file, before the next step
};
constexpr PolicyKind policies[] = {{"snapshots in the launchers' memory", true, false},
                                   {"checkpoints on disk, async_mode = \"async\"", false, false},
                                   {"checkpoints on disk, waited for", false, true}};

JobConfig configured(const JobConfig& config, const PolicyKind& policy) {
  JobConfig changed = config;
  changed.elastic.policy = "respawn";
  changed.elastic.memory_interval = policy.memory ? 3 : 0;
  changed.checkpoint.enable = !policy.memory;
  changed.checkpoint.interval = 3;
  return changed;
}

/// Snapshots after every third step.
void take_snapshots(SimulatedJobOptions& job, const PolicyKind& policy) {
  if (policy.memory) {
    job.keep_every = 3;
    return;
  }
  job.snapshot_due = [](Step step) { return step.value() % 3 == 0; };
  job.wait_for_saves = policy.waits;
  if (policy.waits) return;
  // The file is written meanwhile; what it takes is accounted for by interval.
  job.cost = [cost = job.cost](const PlannedOperation& operation) { return operation.fact.kind == OperationKind::save ? Nanos{0} : cost(operation); };
}

/// What a death costs beside the steps that run again.
double recovery_seconds(const SimulatedOutcome& outcome, double step) {
  const auto& recovery = outcome.recoveries.front();
  const double again = static_cast<double>(recovery.lost_to.value() + 1 - recovery.lost_from.value());
  return std::max(0.0, seconds_of(recovery.first_step - recovery.died) - again * step);
}

/// A death in the middle of a step, behind snapshots after every third one. Which of the two places a restore point lies in shows in the time of
/// reading it alone, so that both are simulated as snapshots in memory.
Result<double> recovery_of(const JobConfig& config, const SimulationOptions& plain, std::size_t state_of_a_rank, bool memory) {
  const RecoveryModel& model = plain.cluster.recovery;
  const auto state = static_cast<double>(state_of_a_rank);
  const auto sharing = static_cast<double>(std::min<std::int64_t>(plain.cluster.network.ranks_per_host, plain.ranks));
  const double reading = memory ? state / (plain.cluster.device.host_gbps * 1e9) : state * sharing / (model.disk_gbps * 1e9);
  const JobConfig configuration = configured(config, policies[0]);
  SimulationOptions alive = plain;
  alive.alter = [](SimulatedJobOptions& job) { take_snapshots(job, policies[0]); };
  const auto undisturbed = simulate_run(configuration, alive);
  if (!undisturbed) return undisturbed.error();
  const double step = undisturbed->step_seconds;
  SimulationOptions deadly = plain;
  deadly.alter = [&, died = undisturbed->outcome.steps.at(7).at](SimulatedJobOptions& job) {
    take_snapshots(job, policies[0]);
    job.respawn = true;
    job.notice = nanos(model.notice_seconds);
    job.start_time = nanos(model.start_seconds);
    job.build = [time = nanos(model.build_seconds + reading)](EpochOrigin::Place place) { return place == EpochOrigin::Place::memory ? time : Nanos{0}; };
    job.deaths = {{died + nanos(step / 2), Rank{job.shards * job.replicas - 1}}};
  };
  const auto dead = simulate_run(configuration, deadly);
  if (!dead) return dead.error();
  if (dead->outcome.recoveries.empty()) return Error{"the simulated death came after the end of the simulated run"};
  return recovery_seconds(dead->outcome, step);
}

Result<RecoveryCosts> costs_of(const JobConfig& config, const SimulationOptions& options, const PolicyKind& policy) {
  const JobConfig configuration = configured(config, policy);
  SimulationOptions plain = options;
  plain.steps = 14;
  const auto without = simulate_run(configuration, plain);
  if (!without) return without.error();
  SimulationOptions with = plain;
  with.alter = [&policy](SimulatedJobOptions& job) { take_snapshots(job, policy); };
  const auto snapshots = simulate_run(configuration, with);
  if (!snapshots) return snapshots.error();
  RecoveryCosts costs{.step = without->step_seconds, .snapshot = std::max(0.0, 3 * (snapshots->step_seconds - without->step_seconds)), .recovery = 0};

  const auto recovery = recovery_of(config, plain, state_bytes(without->estimate.job, without->estimate.training), policy.memory);
  if (!recovery) return recovery.error();
  costs.recovery = *recovery;
  if (policy.memory || policy.waits) return costs;
  const Estimate& e = without->estimate;
  const OperationCosts durations({e.training, e.job.options, options.cluster, state_bytes(e.job, e.training)});
  costs.save = seconds_of(durations.of(Fact{OperationKind::save, {}, {}, false}));
  return costs;
}

}  // namespace

double daly_efficiency(double interval, double snapshot, double recovery, double between_deaths) noexcept {
  return interval / (between_deaths * std::exp(recovery / between_deaths) * std::expm1((interval + snapshot) / between_deaths));
}

double walked_efficiency(const RecoveryCosts& costs, std::uint64_t interval, double between_deaths, std::uint64_t deaths, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::exponential_distribution<double> until(1 / between_deaths);
  const double work = static_cast<double>(interval) * costs.step, cycle = work + costs.snapshot_every(interval);
  double now = 0, kept = 0;
  for (std::uint64_t i = 0; i < deaths; ++i) {
    const double alive = until(random);
    kept += work * std::max(0.0, std::floor((alive - costs.save) / cycle));
    now += alive + costs.recovery;  // deaths during a recovery are left out
  }
  return kept / now;
}

Result<FaultForecast> forecast_faults(const JobConfig& config, const SimulationOptions& options, double between_deaths,
                                      const std::vector<std::uint64_t>& intervals) {
  FaultForecast forecast{.between_deaths = between_deaths, .policies = {}};
  const auto undisturbed = simulate_run(config, options);
  if (!undisturbed) return undisturbed.error();
  forecast.undisturbed = undisturbed->tokens_per_second * options.ranks;
  for (const PolicyKind& kind : policies) {
    const auto costs = costs_of(config, options, kind);
    if (!costs) return costs.error();
    FaultForecast::Policy policy{.name = kind.name, .costs = *costs, .rows = {}};
    policy.young = std::sqrt(2 * costs->snapshot * between_deaths) / costs->step;
    for (const std::uint64_t interval : intervals) {
      const double work = static_cast<double>(interval) * costs->step;
      const double tokens = forecast.undisturbed * undisturbed->step_seconds / costs->step;
      policy.rows.push_back({.interval = interval,
                             .simulated = tokens * walked_efficiency(*costs, interval, between_deaths, 100000, interval),
                             .daly = tokens * daly_efficiency(work, costs->snapshot_every(interval), costs->recovery, between_deaths)});
    }
    forecast.policies.push_back(std::move(policy));
  }
  return forecast;
}

std::string fault_forecast_text(const FaultForecast& f) {
  std::string text =
      fmt::format("one rank dies every {:.3g} h; undisturbed {} tokens/s on all ranks\n", f.between_deaths / 3600, with_thousands(f.undisturbed, 0));
  for (const FaultForecast::Policy& policy : f.policies) {
    text += fmt::format("{}\n  a step {:.3f} s, with a snapshot {:.3f} s more; a death costs {:.2f} s and the steps since the newest snapshot{}\n", policy.name,
                        policy.costs.step, policy.costs.snapshot, policy.costs.recovery,
                        policy.costs.save > 0 ? fmt::format(", which can be restored from {:.2f} s later", policy.costs.save) : std::string{});
    text += fmt::format("  {:>10} {:>16} {:>9} {:>16} {:>9}\n", "interval", "tokens/s, walked", "", "Daly's formula", "");
    for (const FaultForecast::Row& row : policy.rows)
      text += fmt::format("  {:>10} {:>16} {:>8.2f}% {:>16} {:>8.2f}%\n", row.interval, with_thousands(row.simulated, 0), 100 * row.simulated / f.undisturbed,
                          with_thousands(row.daly, 0), 100 * row.daly / f.undisturbed);
    text += policy.costs.snapshot > 0 ? fmt::format("  the best interval by Young's formula: {:.1f} steps\n", policy.young)
                                      : std::string("  a snapshot makes no step longer: the shorter the interval the better\n");
  }
  return text;
}

std::string fault_forecast_json(const FaultForecast& f) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const FaultForecast::Policy& policy : f.policies) {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const FaultForecast::Row& row : policy.rows) rows.push_back({{"interval", row.interval}, {"tokens_per_second", row.simulated}, {"by_daly", row.daly}});
    all.push_back({{"policy", policy.name},
                   {"step_seconds", policy.costs.step},
                   {"snapshot_seconds", policy.costs.snapshot},
                   {"recovery_seconds", policy.costs.recovery},
                   {"best_interval_by_young", policy.young},
                   {"intervals", rows}});
  }
  const nlohmann::ordered_json out{{"seconds_between_deaths", f.between_deaths}, {"undisturbed_tokens_per_second", f.undisturbed}, {"policies", all}};
  return out.dump(2) + "\n";
}

}  // namespace troupe
