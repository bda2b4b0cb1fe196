// troupe chaos: a job under random faults, and whether it comes to the same as without.
#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "src/base/passing_folder.hpp"
#include "src/config/job_config.hpp"
#include "src/config/load_extension.hpp"
#include "src/data/open_documents.hpp"
#include "src/model/families.hpp"
#include "tools/chaos/chaos_job.hpp"
#include "tools/chaos/chaos_run.hpp"
#include "tools/commands/commands.hpp"
#include "tools/launcher/job_setup.hpp"

namespace troupe {
namespace {

namespace fs = std::filesystem;

int refuse(const std::string& why) {
  std::fprintf(stderr, "troupe chaos: %s\n", why.c_str());
  return exit_usage;
}

Result<ChaosTarget> target_of(const JobConfig& config, std::uint32_t ranks) {
  if (auto fits = check_world(config, ranks); !fits) return fits.error();
  const auto vocabulary = vocabulary_of(config.data, config.model.hf_assets_path);
  if (!vocabulary) return vocabulary.error();
  const auto model = describe_model(config.model, *vocabulary);
  if (!model) return model.error();
  ChaosTarget target{.ranks = ranks, .steps = static_cast<std::uint64_t>(config.training.steps), .units = static_cast<std::uint32_t>(model->units.size())};
  if (target.steps < ChaosTarget::fewest_steps)
    return Error{fmt::format("training.steps = {}: faults need a run of at least {} steps to strike", target.steps, ChaosTarget::fewest_steps)};
  return target;
}

void print_line(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

std::string row(std::uint32_t number, const ChaosRound& round, const ChaosResult& result) {
  std::string what;
  for (const Disturbance& each : round.disturbances) what += (what.empty() ? "" : "; ") + describe(each);
  return fmt::format("{:>5}  {:>10}  {:>4} {:>7}  {:>6} {:>8}  {:>6} {:>8.2f} {:>8.1f}  {:<6}  {}", number, round.seed, round.memory_interval,
                     round.checkpoint_interval == 0 ? std::string{"none"} : std::to_string(round.checkpoint_interval),
                     fmt::format("{}/{}", result.struck, round.disturbances.size()), result.epochs, result.respawns, result.longest_recovery, result.seconds,
                     result.problems.empty() ? "ok" : "FAILED", what);
}

}  // namespace

int chaos(const ChaosRequest& request) {
  const SignalQueue signals{SIGINT, SIGTERM, SIGCHLD};
  std::signal(SIGCHLD, SIG_DFL);
  const auto config = with_extension(JobConfig::load(request.config, request.overrides));
  if (!config) return refuse(config.error().message);
  const auto target = target_of(*config, request.processes);
  if (!target) return refuse(target.error().message);
  become_subreaper();
  auto folder = PassingFolder::make("chaos");  // kept where a failed round is to be looked at
  if (!folder) return refuse(folder.error().message);
  ChaosSetup setup;
  setup.folder = folder->path();
  setup.recover_within = request.recover_within;
  setup.config = *config;
  setup.ranks = request.processes;
  if (!config->checkpoint.initial_load_path) setup.config.checkpoint.enable = false;
  print_line(fmt::format("chaos: {}, {} ranks, {} steps, {} rounds from seed {}", request.config.string(), request.processes, target->steps, request.rounds,
                         request.seed));
  if (auto ran = run_undisturbed(setup, signals); !ran) return refuse(ran.error().message);
  print_line(fmt::format("{:>5}  {:>10}  {:>4} {:>7}  {:>6} {:>8}  {:>6} {:>8} {:>8}  {:<6}  {}", "round", "seed", "keep", "save", "struck", "epochs", "starts",
                         "recovery", "seconds", "", "what was done"));
  std::uint32_t failed = 0, struck = 0, drawn = 0;
  double longest = 0;
  for (std::uint32_t i = 0; i < request.rounds; ++i) {
    const ChaosRound round = draw_round(request.seed + i, *target);
    const auto result = run_round(setup, round, signals);
    if (!result) {
      std::fprintf(stderr, "troupe chaos: round %u: %s\n", i + 1, result.error().message.c_str());
      return exit_failed;
    }
    print_line(row(i + 1, round, *result));
    struck += result->struck;
    drawn += static_cast<std::uint32_t>(round.disturbances.size());
    longest = std::max(longest, result->longest_recovery);
    const fs::path own = folder->path() / fmt::format("round-{}", round.seed);
    if (result->problems.empty()) {
      std::error_code ignored;
      fs::remove_all(own, ignored);
      continue;
    }
    ++failed;
    folder->keep();
    for (const std::string& problem : result->problems) print_line("       " + problem);
    std::string again = fmt::format("troupe chaos {} --nproc {} --rounds 1 --seed {}", request.config.string(), request.processes, round.seed);
    for (const std::string& word : request.overrides) again += " " + word;
    print_line(fmt::format("       what it left is in {}; again: {}", own.string(), again));
  }
  print_line(fmt::format("{} of {} rounds held; {} of {} disturbances struck; longest recovery {:.2f} s", request.rounds - failed, request.rounds, struck,
                         drawn, longest));
  return failed == 0 ? exit_done : exit_failed;
}

}  // namespace troupe
