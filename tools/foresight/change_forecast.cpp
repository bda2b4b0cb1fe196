#include "tools/foresight/change_forecast.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "src/metrics/console_line.hpp"
#include "tools/launcher/live_config.hpp"

namespace troupe {
namespace {

Nanos nanos(double seconds) { return Nanos{std::llround(seconds * 1e9)}; }

/// The configuration that ranks are built from after the change.
Result<JobConfig> changed(const JobConfig& config, std::uint32_t ranks, const std::vector<std::string>& changes) {
  const LiveConfig live(config, LiveConfig::Start{.schedule_before = {}, .step = {}, .row = 0, .ranks = ranks});
  if (auto possible = live.check(changes); !possible) return possible.error();
  if (!live.takes_epoch(changes))
    return Error{fmt::format("--change {}: such a change takes effect with one step and changes no plan, so that steps take as long as before",
                             fmt::join(changes, " "))};
  return live.epoch_config_with(changes, ranks);
}

/// What a rank's state takes between the device's memory and its host's, either way.
Nanos copy_time(const Simulation& run) {
  const double gbps = run.estimate.cluster.device.host_gbps;
  return gbps > 0 ? nanos(static_cast<double>(state_bytes(run.estimate.job, run.estimate.training)) / (gbps * 1e9)) : Nanos{0};
}

/// From the end of the last step before `first` to the end of `first`.
Result<Nanos> around(const SimulatedOutcome& outcome, Step first) {
  Nanos before{0};
  for (const SimulatedStep& step : outcome.steps) {
    if (step.step == first) return step.at - before;
    before = step.at;
  }
  return Error{fmt::format("the simulated run has no step {}", first.value())};
}

double gibibytes(const Simulation& run) { return static_cast<double>(run.estimate.memory.device()) / 1073741824.0; }

std::string row(const char* when, const Simulation& run) {
  return fmt::format("  {:<7} {:>12.3f} {:>16} {:>10.3f} {:>10} {:>8} {:>8}×{}\n", when, 1e3 * run.step_seconds,
                     with_thousands(run.tokens_per_second * run.estimate.ranks, 0), gibibytes(run), run.estimate.job.options.replicas,
                     run.estimate.job.options.world, run.estimate.job.options.micro_batches, run.estimate.job.options.batch.rows);
}

}  // namespace

double ChangeForecast::made_up_after() const noexcept {
  // By tokens: a change of the batch changes what a step is.
  const double gain = after.tokens_per_second / before.tokens_per_second - 1;
  return gain > 0 ? pause / (gain * after.step_seconds) : std::numeric_limits<double>::infinity();
}

Result<ChangeForecast> forecast_change(const JobConfig& config, const SimulationOptions& options, const std::vector<std::string>& changes) {
  const auto then = changed(config, options.ranks, changes);
  if (!then) return then.error();
  SimulationOptions undisturbed = options;
  undisturbed.trace.clear();
  auto before = simulate_run(config, undisturbed);
  if (!before) return before.error();
  auto after = simulate_run(*then, undisturbed);
  if (!after) return Error{"after the change: " + after.error().message};
  if (after->simulated != before->simulated)
    return Error{fmt::format("{} ranks stand for all before the change and {} after it: raise --unfolded to simulate all {}", before->simulated,
                             after->simulated, options.ranks)};
  const Step first{options.steps + 1};
  SimulationOptions through = options;
  through.steps = 2 * options.steps;
  through.alter = [&](SimulatedJobOptions& job) {
    job.changes.emplace(first, simulated_job_of(after->estimate, *then, operation_costs(after->estimate, options), before->simulated == options.ranks));
    job.hand_over = copy_time(*before);
    job.build = [time = nanos(options.cluster.recovery.build_seconds) + copy_time(*after)](EpochOrigin::Place place) {
      return place == EpochOrigin::Place::memory ? time : Nanos{0};
    };
  };
  const auto changing = simulate_run(config, through);
  if (!changing) return changing.error();
  const auto gap = around(changing->outcome, first);
  if (!gap) return gap.error();
  const double pause = seconds_of(*gap) - after->step_seconds;
  return ChangeForecast{.changes = changes, .before = std::move(*before), .after = std::move(*after), .pause = pause};
}

std::string change_forecast_text(const ChangeForecast& f) {
  std::string text = fmt::format("the change {} of a live run, by a new epoch between two steps of {} ranks of {}\n", fmt::join(f.changes, " "),
                                 f.before.estimate.ranks, f.before.estimate.cluster.device.name);
  text += fmt::format("  {:<7} {:>12} {:>16} {:>10} {:>10} {:>8} {:>10}\n", "", "step, ms", "tokens/s, all", "GiB/rank", "replicate", "shard", "rows");
  text += row("before", f.before) + row("after", f.after);
  text += fmt::format(
      "  the change itself {:.3f} s: every rank drains, leaves its state in its host's memory, is built anew and reads it; no step runs again\n", f.pause);
  text += std::isinf(f.made_up_after())
              ? std::string("  after it the run is no faster\n")
              : fmt::format("  the faster run has made up for that after {} steps\n", with_thousands(std::ceil(f.made_up_after()), 0));
  if (!f.after.estimate.fits())
    text +=
        fmt::format("  after it the run does not fit into {:.2f} GiB: a live run would go back to what it was\n", f.after.estimate.cluster.device.memory_gib);
  return text;
}

std::string change_forecast_json(const ChangeForecast& f) {
  using nlohmann::ordered_json;
  const auto run = [](const Simulation& simulation) {
    ordered_json told = ordered_json::parse(simulation_json(simulation));
    told["device_bytes"] = simulation.estimate.memory.device();
    told["fits"] = simulation.estimate.fits();
    return told;
  };
  const double steps = f.made_up_after();
  const ordered_json out{{"changes", f.changes},
                         {"before", run(f.before)},
                         {"after", run(f.after)},
                         {"pause_seconds", f.pause},
                         {"made_up_after_steps", std::isinf(steps) ? ordered_json(nullptr) : ordered_json(steps)}};
  return out.dump(2) + "\n";
}

}  // namespace troupe
