// troupe-worker: hosts ranks. Started by `troupe train`, torchrun or srun.
#include <sys/prctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "tools/commands/commands.hpp"
#include "tools/launcher/signals.hpp"
#include "tools/worker/environment.hpp"
#include "tools/worker/generate_mode.hpp"
#include "tools/worker/loader_process.hpp"
#include "tools/worker/sample_mode.hpp"
#include "tools/worker/seed_mode.hpp"
#include "tools/worker/worker_process.hpp"

namespace {

/// The system kills us when our launcher's thread ends, however it ends. If it has ended already, so do we.
void die_with_launcher() {
  const char* text = std::getenv("TROUPE_LAUNCHER_PID");
  if (text == nullptr) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != static_cast<pid_t>(std::strtol(text, nullptr, 10))) std::_Exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  die_with_launcher();
  CLI::App app{"Hosts ranks of a training job. `troupe train` starts it; torchrun and srun may too: torchrun --no-python troupe-worker CONFIG.toml.",
               "troupe-worker"};
  troupe::WorkerRequest worker;
  app.add_option("CONFIG", worker.config, "configuration, TOML; without it the launcher tells");
  app.add_option("--ranks-in-process", worker.ranks_in_process, "ranks that this process hosts, from its own on")->check(CLI::Range(1U, 65536U));
  app.add_flag("--overwrite", worker.overwrite, "rank 0 without a launcher: delete what an earlier run left in job.dump_folder");
  bool loader_mode = false;
  app.add_flag("--loader", loader_mode, "load data for other processes' ranks, as the launcher's loader process number TROUPE_RANK (data.loader_hosts)");
  troupe::SampleRequest sample;
  bool sample_mode = false;
  app.add_flag("--sample", sample_mode, "continue a prompt instead; `troupe sample --help` describes it");
  app.add_option("--checkpoint", sample.checkpoint, "with --sample: folder of a sealed checkpoint");
  app.add_flag("--untrained", sample.untrained, "with --sample: the initial weights");
  app.add_option("--prompt", sample.prompt, "with --sample");
  app.add_option("--tokens", sample.tokens, "with --sample");
  app.add_option("--temperature", sample.temperature, "with --sample");
  app.add_option("--seed", sample.seed, "with --sample");
  troupe::GenerateRequest generate;
  bool generate_mode = false;
  app.add_flag("--generate", generate_mode, "continue a prompt with the weights of the folder CONFIG; `troupe generate --help` describes it");
  app.add_option("--ids", generate.ids, "with --generate");
  app.add_option("--top-p", generate.top_p, "with --generate");
  bool seed_mode = false;
  app.add_flag("--seed-checkpoint", seed_mode, "write the initial weights of CONFIG as the checkpoint of step 0, for a launcher that holds the run's folder");
  app.set_version_flag("--version", "troupe " TROUPE_VERSION);
  app.footer(
      "\nWhere it stands comes from TROUPE_COORDINATOR=host:port, TROUPE_RANK, TROUPE_WORLD_SIZE and TROUPE_SECRET_FILE; or torchrun's RANK, WORLD_SIZE, "
      "LOCAL_RANK, MASTER_ADDR, MASTER_PORT; or "
      "Slurm's SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID, SLURM_NODELIST. Without a launcher rank 0 hosts the Coordinator at MASTER_PORT + 1, and the ranks "
      "find the job's secret in "
      "job.dump_folder/control.json.\n\nExit codes: 0 a clean end; 1 the run failed; 2 it could not join or is configured wrongly.");
  auto split = troupe::split_overrides({argv + 1, argv + argc});
  worker.overrides = split.overrides;
  try {
    std::reverse(split.rest.begin(), split.rest.end());
    app.parse(split.rest);
  } catch (const CLI::ParseError& problem) {
    return app.exit(problem) == 0 ? 0 : 2;
  }
  if (sample_mode) {
    sample.config = worker.config;
    sample.overrides = split.overrides;
    try {
      return troupe::run_sample(sample);
    } catch (const std::exception& problem) {
      std::fprintf(stderr, "troupe sample: %s\n", problem.what());
      return troupe::exit_failed;
    }
  }
  if (generate_mode) {
    generate.checkpoint = worker.config;
    generate.overrides = split.overrides;
    generate.prompt = sample.prompt;
    generate.tokens = sample.tokens;
    generate.temperature = sample.temperature;
    generate.seed = sample.seed;
    try {
      return troupe::run_generate(generate);
    } catch (const std::exception& problem) {
      std::fprintf(stderr, "troupe generate: %s\n", problem.what());
      return troupe::exit_failed;
    }
  }
  if (seed_mode) {
    try {
      return troupe::write_seed_checkpoint(worker.config, split.overrides);
    } catch (const std::exception& problem) {
      std::fprintf(stderr, "seed checkpoint: %s\n", problem.what());
      return troupe::exit_failed;
    }
  }
  const auto place = troupe::place_worker(troupe::process_environment());
  if (!place) {
    std::fprintf(stderr, "troupe-worker: %s\n", place.error().message.c_str());
    return 2;
  }
  const troupe::SignalQueue signals{SIGINT, SIGTERM, SIGHUP, SIGUSR1};
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    return loader_mode ? troupe::run_loader(*place) : troupe::run_worker(worker, *place, signals);
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "troupe-worker: %s %u: %s\n", loader_mode ? "loader" : "rank", place->rank.value(), problem.what());
    return 1;
  }
}
