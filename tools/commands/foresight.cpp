#include "tools/commands/foresight.hpp"

#include <CLI/CLI.hpp>
#include <cstdio>

#include "src/config/load_extension.hpp"
#include "tools/commands/commands.hpp"
#include "tools/foresight/cluster_file.hpp"
#include "tools/foresight/estimate.hpp"

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

}  // namespace

void ForesightCommands::add_to(CLI::App& app, const std::string& footer) {
  auto* command = app.add_subcommand("estimate",
                                     "Say what a run would take before anything runs: parameters, FLOPs, memory of a rank, bytes of collectives, "
                                     "time by the roofline.");
  add_common(*command, estimate_);
  command->footer(footer + cluster_help);
}

bool ForesightCommands::called(const CLI::App& app) const { return app.got_subcommand("estimate"); }

int ForesightCommands::run(const CLI::App&, const std::vector<std::string>& overrides) {
  estimate_.overrides = overrides;
  return estimate(estimate_);
}

}  // namespace troupe
