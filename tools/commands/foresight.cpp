#include "tools/commands/foresight.hpp"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>

#include "src/config/load_extension.hpp"
#include "tools/commands/commands.hpp"
#include "tools/foresight/change_forecast.hpp"
#include "tools/foresight/cluster_file.hpp"
#include "tools/foresight/estimate.hpp"
#include "tools/foresight/fault_forecast.hpp"
#include "tools/foresight/plan_search.hpp"
#include "tools/foresight/profile.hpp"
#include "tools/foresight/simulate.hpp"

namespace troupe {
namespace {

const char* const cluster_help =
    "\nDevices: h200, h100, a100, b200, cpu. A --network file is TOML with any keys of [device], [network] and [recovery]: docs/simulate.md\n";

int refuse(const char* command, const Error& error) {
  std::fprintf(stderr, "troupe %s: %s\n", command, error.message.c_str());
  return exit_usage;
}

void add_common(CLI::App& command, ForesightRequest& request) {
  command.add_option("CONFIG", request.config, "configuration, TOML")->required();
  command.add_option("--ranks", request.ranks, "ranks of the run")->check(CLI::Range(1U, 1048576U))->capture_default_str();
  command.add_option("--gpu", request.device, "what each rank computes on")->capture_default_str();
  command.add_option("--network", request.network, "TOML file that describes device, hosts and network")->check(CLI::ExistingFile);
  command.add_flag("--json", request.json, "for machines: one JSON object");
}

int estimate(const ForesightRequest& request) {
  const auto config = with_extension(JobConfig::load(request.config, request.overrides));
  if (!config) return refuse("estimate", config.error());
  const auto cluster = load_cluster(request.device, request.network);
  if (!cluster) return refuse("estimate", cluster.error());
  const auto result = estimate_run(*config, request.ranks, *cluster);
  if (!result) return refuse("estimate", result.error());
  std::fputs((request.json ? estimate_json(*result) : estimate_text(*result)).c_str(), stdout);
  return exit_done;
}

/// Corrections that the profiled runs give; none without them.
Result<Calibration> corrections(const SimulateRequest& request, const ClusterModel& cluster) {
  std::vector<RunProfile> runs;
  for (const auto& folder : request.profiles) {
    auto run = read_profile(folder);
    if (!run) return run.error();
    runs.push_back(std::move(*run));
  }
  if (!runs.empty()) return calibrate(runs, cluster);
  return Calibration{.device = cluster.device, .factors = {}, .report = {}};
}

/// What the configuration asks for and a simulated step has not, and where the times of its operations come from.
void tell_assumptions(const JobConfig& config, const Calibration& measured, const ClusterModel& cluster) {
  const auto tell = [](const char* what) { std::printf("left out: %s\n", what); };
  if (!config.faults.rules.empty()) tell("fault rules (--death-every HOURS shows what deaths cost)");
  if (!config.live.changes.empty()) tell("planned changes (--change KEY=VALUE shows what one does)");
  if (config.validation.enable) tell("validations");
  for (const std::string& line : measured.report) std::printf("profile: %s\n", line.c_str());
  if (measured.report.empty() && !cluster.device.gpu())
    std::printf(
        "no profile: rates of \"%s\" are assumed, and another machine's may be half or twice as high; a short run here with --profile RUN measures them\n",
        cluster.device.name.c_str());
}

int simulate(const SimulateRequest& request) {
  const auto config = with_extension(JobConfig::load(request.config, request.overrides));
  if (!config) return refuse("simulate", config.error());
  auto cluster = load_cluster(request.device, request.network);
  if (!cluster) return refuse("simulate", cluster.error());
  const auto measured = corrections(request, *cluster);
  if (!measured) return refuse("simulate", measured.error());
  SimulationOptions options;
  options.ranks = request.ranks;
  options.cluster = *cluster;
  options.cluster.device = measured->device;
  options.factors = measured->factors;
  options.steps = request.steps;
  options.unfolded = request.unfolded;
  options.trace = request.trace;
  if (!request.json) tell_assumptions(*config, *measured, *cluster);
  if (request.death_hours > 0) {
    const auto forecast = forecast_faults(*config, options, request.death_hours * 3600, request.intervals);
    if (!forecast) return refuse("simulate", forecast.error());
    std::fputs((request.json ? fault_forecast_json(*forecast) : fault_forecast_text(*forecast)).c_str(), stdout);
    return exit_done;
  }
  if (!request.changes.empty()) {
    const auto forecast = forecast_change(*config, options, request.changes);
    if (!forecast) return refuse("simulate", forecast.error());
    std::fputs((request.json ? change_forecast_json(*forecast) : change_forecast_text(*forecast)).c_str(), stdout);
    if (!request.json && !request.trace.empty()) std::printf("timeline: %s\n", request.trace.c_str());
    return exit_done;
  }
  const auto result = simulate_run(*config, options);
  if (!result) return refuse("simulate", result.error());
  if (request.json) {
    std::fputs(simulation_json(*result).c_str(), stdout);
    return exit_done;
  }
  std::fputs(simulation_text(*result).c_str(), stdout);
  if (!request.trace.empty()) std::printf("timeline: %s\n", request.trace.c_str());
  return exit_done;
}

int plan(const PlanRequest& request) {
  const auto config = with_extension(JobConfig::load(request.config, request.overrides));
  if (!config) return refuse("plan", config.error());
  const auto cluster = load_cluster(request.device, request.network);
  if (!cluster) return refuse("plan", cluster.error());
  SimulationOptions options;
  options.ranks = request.ranks;
  options.cluster = *cluster;
  const auto search = search_plans(*config, options);
  if (!search) return refuse("plan", search.error());
  std::fputs((request.json ? plan_search_json(*search) : plan_search_text(*search)).c_str(), stdout);
  if (search->best.empty()) return exit_failed;
  std::filesystem::path out = request.out;
  if (out.empty()) out = request.config.stem().string() + "-planned.toml";
  std::ofstream file(out);
  file << short_toml(search->best.front().config);
  if (!file.flush()) return refuse("plan", Error{"cannot write " + out.string()});
  if (!request.json) std::printf("the first of these: %s\n", out.c_str());
  return exit_done;
}

}  // namespace

void ForesightCommands::add_to(CLI::App& app, const std::string& footer) {
  auto* command = app.add_subcommand("estimate",
                                     "Say what a run would take before anything runs: parameters, FLOPs, memory of a rank, bytes of collectives, "
                                     "time by the roofline.");
  add_common(*command, estimate_);
  command->footer(footer + cluster_help);
  command = app.add_subcommand("simulate", "Run a job of N ranks in virtual time: the real actors, plans and slots, on lanes that only take time.");
  add_common(*command, simulate_);
  command->add_option("--profile", simulate_.profiles, "folder of a run with a trace, whose operations' durations correct the roofline; several may be given")
      ->check(CLI::ExistingDirectory)
      ->allow_extra_args(false);
  command->add_option("--steps", simulate_.steps, "steps to simulate; the first two are not looked at")->check(CLI::Range(3U, 100000U))->capture_default_str();
  command->add_option("--unfolded", simulate_.unfolded, "simulate every rank of worlds up to this size; of larger ones four stand for all")
      ->capture_default_str();
  command->add_option("-o,--output", simulate_.trace, "timeline to write, as `troupe trace` writes it");
  command->add_option("--death-every", simulate_.death_hours, "hours between deaths of some rank: tokens/s by snapshot policy and interval instead")
      ->check(CLI::PositiveNumber);
  command
      ->add_option(
          "--change", simulate_.changes,
          "KEY=VALUE, as `troupe set` changes a live run by a new epoch (may be given again): the steps before and after, and what the change itself takes")
      ->allow_extra_args(false)
      ->excludes("--death-every");
  command->add_option("--intervals", simulate_.intervals, "steps between snapshots, with --death-every")
      ->delimiter(',')
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 62U));
  command->footer(footer + cluster_help);
  command =
      app.add_subcommand("plan", "Search mesh, micro-batches, activation checkpointing and slots for the fastest run that fits, and write its configuration.");
  add_common(*command, plan_);
  command->add_option("-o,--output", plan_.out, "configuration to write; default: the name of CONFIG with -planned, here");
  command->footer(footer + cluster_help);
}

bool ForesightCommands::called(const CLI::App& app) const {
  return app.got_subcommand("estimate") || app.got_subcommand("simulate") || app.got_subcommand("plan");
}

int ForesightCommands::run(const CLI::App& app, const std::vector<std::string>& overrides) {
  estimate_.overrides = simulate_.overrides = plan_.overrides = overrides;
  if (app.got_subcommand("plan")) return plan(plan_);
  if (app.got_subcommand("simulate")) return simulate(simulate_);
  return estimate(estimate_);
}

}  // namespace troupe
