// troupe: the launcher and its tools. Links no LibTorch.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "src/base/edit_distance.hpp"
#include "tools/commands/commands.hpp"
#include "tools/commands/foresight.hpp"
#include "tools/launcher/live_keys.hpp"

namespace {

const char* const overrides_help =
    "\nAny key of the configuration may follow, and wins over the file: --training.steps 100, --training.steps=100, --checkpoint.enable, "
    "--checkpoint.no_enable, --model.converters=float8. `troupe config CONFIG.toml` lists all keys.\n";

void add_train(CLI::App& app, troupe::TrainRequest& request) {
  auto* command = app.add_subcommand("train", "Train the model that CONFIG describes, from the start or from the newest sealed checkpoint of its folder.");
  command->add_option("CONFIG", request.config, "configuration, TOML")->required();
  auto* processes = command->add_option("--nproc", request.processes, "worker processes on this host, one a rank (default 1)")->check(CLI::Range(1U, 65536U));
  command->add_option("--ranks-in-process", request.ranks_in_process, "this many ranks as threads of one worker process; the same results")
      ->check(CLI::Range(1U, 65536U))
      ->excludes(processes);
  command->add_option("--nnodes", request.nodes, "hosts of the job: this command is given on each, with its --node-rank (docs/hosts.md)")
      ->check(CLI::Range(1U, 65000U))
      ->capture_default_str();
  command->add_option("--node-rank", request.node_rank, "which of them this is; 0 coordinates")->capture_default_str();
  command->add_option("--device", request.device, "cpu or cuda: short for --runtime.device");
  command->add_option("--port", request.port, "port on which the launcher listens for its workers; 0: any free one")->capture_default_str();
  auto* dashboard = command->add_flag("--dashboard", request.dashboard, "serve a web page of the run on 127.0.0.1 and print its URL (docs/dashboard.md)");
  command->add_option("--dashboard-port", request.dashboard_port, "its port; default: any free one")->needs(dashboard);
  command->add_flag("--dry-run", request.dry_run, "print plan, memory and the order of letters, and start nothing");
  command->add_flag("--overwrite", request.overwrite, "delete what an earlier run left in job.dump_folder and begin anew; files of others stay");
  command->footer(
      std::string(overrides_help) +
      "\nThe run's folder (job.dump_folder) holds config.toml, metrics.jsonl, journal.jsonl, logs/rank-N.log, trace/, index/, checkpoint/step-N. A "
      "folder with a sealed "
      "checkpoint is resumed, one of a live run is refused, any other that is not empty needs --overwrite.\n"
      "\nCtrl-C, SIGTERM, SIGHUP or SIGUSR1, to the launcher or to any worker, stops all ranks at the next step boundary with a checkpoint; a second "
      "Ctrl-C at once.\n\n" +
      troupe::exit_codes_help);
}

void add_config(CLI::App& app, troupe::ConfigRequest& request) {
  auto* command = app.add_subcommand("config",
                                     "Print the merged configuration: each key with its value, where that came from, what changing it takes, and whether it is "
                                     "built.");
  command->add_option("CONFIG", request.config, "configuration, TOML, or a run's folder; without it the defaults");
  command->add_flag("--toml", request.toml, "as TOML that can be loaded again");
  command->add_flag("--doc", request.doc, "the reference page of all keys instead, as Markdown");
  command->footer(std::string(overrides_help) + "\n" + troupe::exit_codes_help);
}

void add_sample(CLI::App& app, troupe::SampleRequest& request) {
  auto* command = app.add_subcommand("sample", "Print text that the model continues a prompt with.");
  command->add_option("CONFIG", request.config, "configuration of the run, TOML, or the run's folder (job.dump_folder)")->required();
  command->add_option("--checkpoint", request.checkpoint, "folder of a sealed checkpoint; default: the newest of the run");
  command->add_flag("--untrained", request.untrained, "from the initial weights instead");
  command->add_option("--prompt", request.prompt, "text to continue");
  command->add_option("--tokens", request.tokens, "how many tokens to add")->capture_default_str();
  command->add_option("--temperature", request.temperature, "of the sampling; 0: always the most likely token")
      ->capture_default_str()
      ->check(
          [](const std::string& text) { return std::strtod(text.c_str(), nullptr) >= 0 ? std::string{} : "expected a number of at least 0, found " + text; });
  command->add_option("--seed", request.seed, "of the sampling")->capture_default_str();
  command->footer(std::string(overrides_help) + "\n" + troupe::exit_codes_help);
}

void add_data(CLI::App& app, troupe::InspectDataRequest& request) {
  auto* data = app.add_subcommand("data", "Look at the data of a run.");
  data->require_subcommand(1);
  auto* command = data->add_subcommand("inspect", "Print exactly what a rank saw, or will see, in a step: rows, documents, token ids, text, digest.");
  command->add_option("CONFIG", request.config, "configuration of the run, TOML, or the run's folder (job.dump_folder)")->required();
  command->add_option("--step", request.step, "step, from 1")->required()->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 62U));
  command->add_option("--rank", request.rank, "data-parallel rank, from 0")->capture_default_str();
  command->add_option("--nproc", request.processes, "ranks of the run; default: as many as its journal says, else 1")->check(CLI::Range(1U, 65536U));
  command->footer(std::string(overrides_help) + "\n" + troupe::exit_codes_help);
}

void add_tokenize(CLI::App& app, troupe::TokenizeRequest& request) {
  auto* command = app.add_subcommand("tokenize", "Make token shards of the texts that CONFIG names, so that training need not; goes on where it was stopped.");
  command->add_option("CONFIG", request.config, "configuration, TOML: model.hf_assets_path, training.dataset and dataset_path, [data]")->required();
  command->add_option("FOLDER", request.folder, "where the shards go; train on them with training.dataset = \"tokens\", training.dataset_path = FOLDER")
      ->required();
  command->add_option("--threads", request.threads, "0: as many as the machine has")->check(CLI::Range(0U, 1024U))->capture_default_str();
  command->add_option("--part-mib", request.part_mib, "text of one shard, MiB: what is done again after an interruption")
      ->check(CLI::Range(1U, 4096U))
      ->capture_default_str();
  command->footer(std::string(overrides_help) + "\ndocs/tokenizers.md\n\n" + troupe::exit_codes_help);
}

void add_trace(CLI::App& app, troupe::TraceRequest& request) {
  auto* command =
      app.add_subcommand("trace", "Show a run's timeline: as a page, as a file for https://ui.perfetto.dev, or as a report of where the time went.");
  command->add_option("RUN", request.run, "the run's folder (job.dump_folder), live or finished")->required();
  command->add_option("--steps", request.steps, "only these, as 7 or 3..9; default: all that the ring buffers hold");
  command->add_option("-o,--output", request.out, "file in Chrome's trace format; default: RUN/trace/trace.json");
  command->add_option("--html", request.html, "one self-contained page instead: zoom, pan, search, letters, slots, faults");
  auto* report =
      command->add_flag("--report", request.report, "per rank and lane: busy, waiting for what; the critical path, stragglers, slots that would help");
  command->add_flag("--json", request.json, "the report as JSON")->needs(report);
  command->add_option("--compare", request.compare, "another run's folder: the report side by side")->needs(report);
  command->footer(
      std::string("\nThe clocks of the ranks are aligned by their letters; how far they were off, and how sure that is, is printed. docs/timeline.md\n\n") +
      troupe::exit_codes_help);
}

void add_generate(CLI::App& app, troupe::GenerateRequest& request) {
  auto* command = app.add_subcommand("generate", "Continue a prompt with the weights of a checkpoint, or of a folder of Hugging Face.");
  command->add_option("CHECKPOINT", request.checkpoint, "folder of a sealed checkpoint, RUN/checkpoint/step-N, or of Hugging Face")->required();
  command->add_option("PROMPT", request.prompt, "the text to continue; tokens are its bytes");
  command->add_option("--ids", request.ids, "the prompt as token ids (1,42,7); the answer is ids too");
  command->add_option("--tokens", request.tokens, "the most tokens to add")->capture_default_str();
  command->add_option("--temperature", request.temperature, "0: always the likeliest token")->check(CLI::NonNegativeNumber)->capture_default_str();
  command->add_option("--top-p", request.top_p, "draw from the likeliest tokens that hold this much of the probability")->capture_default_str();
  command->add_option("--seed", request.seed, "the same seed gives the same text")->capture_default_str();
  command->footer(
      std::string("\nKeys of the configuration may follow: --training.mixed_precision_param bfloat16, --runtime.threads_per_rank 4. docs/huggingface.md\n\n") +
      troupe::exit_codes_help);
}

void add_convert(CLI::App& app, troupe::ConvertRequest& request) {
  auto* command = app.add_subcommand("convert", "Write the weights of a sealed checkpoint as a folder that Hugging Face's transformers loads.");
  command->add_option("CHECKPOINT", request.checkpoint, "folder of a sealed checkpoint, RUN/checkpoint/step-N")->required();
  command->add_option("--to", request.to, "hf: config.json and safetensors")->check(CLI::IsMember({"hf"}))->required();
  command->add_option("FOLDER", request.out, "folder to write; must not be there, or be empty")->required();
  command->add_option("--dtype", request.dtype, "type of the weights; without it the checkpoint's")->check(CLI::IsMember({"float32", "bfloat16", "float16"}));
  command->add_option("--tokenizer", request.tokenizer, "folder whose tokenizer files are copied; without it the one that the run began from");
  command->add_option("--max-file-mib", request.most_file_mib, "the most MiB of tensors in one file")->check(CLI::Range(1U, 1U << 30U))->capture_default_str();
  command->footer(std::string("\nThe way back: checkpoint.initial_load_path with checkpoint.initial_load_in_hf. docs/huggingface.md\n\n") +
                  troupe::exit_codes_help);
}

void add_inspect(CLI::App& app, troupe::InspectRequest& request) {
  auto* command =
      app.add_subcommand("inspect", "Show what every rank of a live run is at, also when ranks hang; the first line names who holds the others up.");
  command->add_option("RUN", request.run, "the run's folder (job.dump_folder)")->required();
  command->add_flag("--watch", request.watch, "again every second, until Ctrl-C");
  command->add_flag("--json", request.json, "for machines: one JSON object");
  command->footer(
      std::string("\nThe launcher answers from the ranks' last heartbeats, so it does so within a second whatever the ranks do. docs/inspect.md\n\n") +
      troupe::exit_codes_help);
}

void add_inject(CLI::App& app, troupe::InjectRequest& request) {
  auto* command = app.add_subcommand("inject", "Put a fault into a live run, to see what it makes of it.");
  command->add_option("RUN", request.run, "the run's folder (job.dump_folder)")->required();
  command->add_option("RULE", request.rule, "as in faults.rules: 'site=collective kind=reduce rank=1 step=70 action=stall for=2s'")->required();
  command->footer(std::string("\nEach firing is a line in the run's journal.jsonl. docs/faults.md\n\n") + troupe::exit_codes_help);
}

void add_set(CLI::App& app, troupe::SetRequest& request) {
  auto* command = app.add_subcommand("set", "Change keys of a live run: at one step, on all ranks, or not at all.");
  command->add_option("RUN", request.run, "the run's folder (job.dump_folder)")->required();
  command->add_option("KEY=VALUE", request.changes, "such as optimizer.lr=1e-4; all or none take effect")->required();
  command->add_flag("--dry-run", request.dry_run, "only say what would happen, and from which step on");
  command->footer(
      std::string(
          "\nWhat takes a new epoch (batch sizes, mesh, precision, slots …) begins between two steps, in the same processes. The journal shows from which "
          "step on. A run with [[changes]] step = 7, set = {\"optimizer.lr\" = 1e-4} repeats it. docs/reconfigure.md\n\nBy one step: ") +
      troupe::live_keys(troupe::LiveKind::step) + "\n\nBy a new epoch: " + troupe::live_keys(troupe::LiveKind::epoch) + "\n\n" + troupe::exit_codes_help);
}

void add_resize(CLI::App& app, const char* name, const char* what, troupe::ResizeRequest& request) {
  auto* command = app.add_subcommand(name, what);
  command->add_option("RUN", request.run, "the run's folder (job.dump_folder)")->required();
  command->add_option("--ranks", request.ranks, "how many")->check(CLI::Range(1U, 4096U))->capture_default_str();
  command->add_flag("--dry-run", request.dry_run, "only say what would happen");
  command->footer(
      std::string("\nThe launcher starts or lets go of the processes; a new epoch begins with the others' next step boundary, the rows of a step stay, no step "
                  "is lost. docs/reconfigure.md\n\n") +
      troupe::exit_codes_help);
}

void add_chaos(CLI::App& app, troupe::ChaosRequest& request) {
  auto* command = app.add_subcommand("chaos", "Train again and again under random faults, and check that each run comes to the same as an undisturbed one.");
  command->add_option("CONFIG", request.config, "configuration, TOML")->required();
  command->add_option("--nproc", request.processes, "worker processes, one a rank")->check(CLI::Range(1U, 256U))->capture_default_str();
  command->add_option("--rounds", request.rounds, "how many runs")->check(CLI::Range(1U, 1000000U))->capture_default_str();
  command->add_option("--seed", request.seed, "of the first round; each next one has the next")->capture_default_str();
  command->add_option("--recover-within", request.recover_within, "seconds from a fault to the first new step, at most")->capture_default_str();
  command->footer(
      std::string(overrides_help) +
      "\nRuns in a temporary folder, with elastic.policy = \"respawn\". Faults: kill -9 and SIGSTOP of ranks, kill -9 of the launcher, and fault rules; "
      "also two at once, and while the run recovers or saves. Exit code 1 if an invariant is broken; the round's seed repeats it. docs/faults.md\n\n" +
      troupe::exit_codes_help);
}

/// What is wrong with the command's name, or with keys of the configuration given to a command that has no use for them; empty: nothing.
std::string misused(CLI::App& app, const troupe::SplitArguments& split) {
  const auto word = std::ranges::find_if(split.rest, [](const std::string& argument) { return !argument.starts_with('-'); });
  if (word == split.rest.end()) return {};
  std::string known, nearest;
  std::size_t least = 3;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    known += (known.empty() ? "" : ", ") + command->get_name();
    if (const std::size_t distance = troupe::edit_distance(*word, command->get_name()); distance < least) {
      least = distance;
      nearest = command->get_name();
    }
    if (command->get_name() != *word) continue;
    const bool takes_keys = command->get_option_no_throw("RUN") == nullptr && *word != "convert";
    if (split.overrides.empty() || takes_keys) return {};
    return "troupe " + *word + ": unexpected '" + split.overrides.front() + "': this command takes no keys of a configuration" +
           (*word == "set" ? "; write KEY=VALUE without dashes" : "");
  }
  return "troupe: unknown command '" + *word + "'; " + (nearest.empty() ? "" : "did you mean '" + nearest + "'? ") + "There are: " + known;
}

/// "troupe train: --nproc: Value 0 not in range 1 to 65536"
std::string refusal_of(const CLI::App* app, const CLI::Error& problem) {
  std::string name = app->get_name();
  for (auto called = app->get_subcommands(); !called.empty(); called = called.front()->get_subcommands()) name += " " + called.front()->get_name();
  return name + ": " + problem.what() + "; see " + name + " --help\n";
}

/// The exit code of a command that prints: what it printed must have been written, too.
int when_written(int code) {
  if (code != troupe::exit_done || (std::fflush(stdout) == 0 && std::ferror(stdout) == 0)) return code;
  std::fprintf(stderr, "troupe: the output could not be written: %s\n", std::strerror(errno));
  return troupe::exit_failed;
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app{"Troupe trains large language models with an actor-model asynchronous runtime.", "troupe"};
  app.set_version_flag("--version", "troupe " TROUPE_VERSION);
  app.require_subcommand(1);
  app.failure_message(refusal_of);
  app.footer(std::string("\n`troupe COMMAND --help` describes a command.\n\n") + troupe::exit_codes_help);
  troupe::TrainRequest train;
  troupe::ConfigRequest config;
  troupe::SampleRequest sample;
  troupe::TraceRequest trace;
  troupe::InspectDataRequest data;
  add_train(app, train);
  add_config(app, config);
  add_sample(app, sample);
  add_trace(app, trace);
  troupe::GenerateRequest generate;
  add_generate(app, generate);
  troupe::ConvertRequest convert;
  add_convert(app, convert);
  troupe::InspectRequest inspect;
  troupe::InjectRequest inject;
  troupe::SetRequest set;
  add_inspect(app, inspect);
  add_inject(app, inject);
  add_set(app, set);
  troupe::ForesightCommands foresight;
  foresight.add_to(app, std::string(overrides_help) + "\n" + troupe::exit_codes_help);
  troupe::TokenizeRequest tokenize;
  add_tokenize(app, tokenize);
  troupe::ChaosRequest chaos;
  add_chaos(app, chaos);

  troupe::ResizeRequest join, leave;
  leave.leave = true;
  add_resize(app, "join", "Add ranks to a live run: in the place of lost ones, or more than it began with.", join);
  add_resize(app, "leave", "Let go of the last ranks of a live run.", leave);
  add_data(app, data);
  auto split = troupe::split_overrides({argv + 1, argv + argc});
  train.overrides = config.overrides = sample.overrides = tokenize.overrides = data.overrides = chaos.overrides = generate.overrides = split.overrides;
  if (const std::string problem = misused(app, split); !problem.empty()) {
    std::fprintf(stderr, "%s\n", problem.c_str());
    return troupe::exit_usage;
  }
  try {
    std::reverse(split.rest.begin(), split.rest.end());  // CLI11 takes them last first
    app.parse(split.rest);
    if (!train.device.empty()) train.overrides.insert(train.overrides.end(), {"--runtime.device", train.device});
  } catch (const CLI::ParseError& problem) {
    return app.exit(problem) == 0 ? troupe::exit_done : troupe::exit_usage;
  }
  troupe::accept_run_folder(sample.config, sample.overrides);
  troupe::accept_run_folder(data.config, data.overrides);
  troupe::accept_run_folder(config.config, config.overrides);
  if (app.got_subcommand("train")) {
    const int code = troupe::train(train);
    return train.dry_run ? when_written(code) : code;  // no run fails for a console that takes no more lines
  }
  if (foresight.called(app)) return when_written(foresight.run(app, split.overrides));
  if (app.got_subcommand("generate")) return troupe::generate_text(generate);
  if (app.got_subcommand("convert")) return when_written(troupe::convert_weights(convert));
  if (app.got_subcommand("config")) return when_written(troupe::show_config(config));
  if (app.got_subcommand("inspect")) return when_written(troupe::inspect(inspect));
  if (app.got_subcommand("inject")) return when_written(troupe::inject(inject));
  if (app.got_subcommand("set")) return when_written(troupe::set_keys(set));
  if (app.got_subcommand("chaos")) return when_written(troupe::chaos(chaos));
  if (app.got_subcommand("join")) return when_written(troupe::resize(join));
  if (app.got_subcommand("leave")) return when_written(troupe::resize(leave));
  if (app.got_subcommand("data")) return when_written(troupe::inspect_data(data));
  if (app.got_subcommand("tokenize")) return when_written(troupe::tokenize(tokenize));
  if (app.got_subcommand("trace")) return when_written(troupe::trace_run(trace));
  return troupe::sample(sample);
} catch (const std::exception& problem) {
  std::fprintf(stderr, "troupe: %s\n", problem.what());
  return troupe::exit_failed;
}
