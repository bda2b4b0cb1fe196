#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// Exit codes of every command; the text of --help.
inline constexpr int exit_done = 0, exit_failed = 1, exit_usage = 2;
inline constexpr const char* exit_codes_help =
    "Exit codes: 0 done, or stopped on request at a step boundary; 1 the run failed (a rank died, a disk was full at the last save, …); "
    "2 wrong usage or configuration, nothing was started; 128 + N ended at once by signal N (a second Ctrl-C: 130).";

struct TrainRequest {
  std::filesystem::path config;
  std::vector<std::string> overrides;      ///< --section.key value …
  std::optional<std::uint32_t> processes;  ///< --nproc
  std::optional<std::uint32_t> ranks_in_process;
  std::uint32_t nodes = 1, node_rank = 0;  ///< --nnodes hosts with so many ranks each; this is host --node-rank
  std::string device;                      ///< --device, short for the override --runtime.device; empty: as configured
  std::uint16_t port = 0;
  bool overwrite = false;
  bool dry_run = false;              ///< print what would be done instead
  bool dashboard = false;            ///< serve a web page
  std::uint16_t dashboard_port = 0;  ///< 0: any free one
};
/// Trains: hosts the Coordinator (on node 0), starts and watches the workers of this host. Returns the exit code.
[[nodiscard]] int train(const TrainRequest& request);

struct ConfigRequest {
  std::filesystem::path config;
  std::vector<std::string> overrides;
  bool toml = false;  ///< as a file that can be loaded again
  bool doc = false;   ///< the reference page of all keys instead
};
/// Prints the merged configuration.
[[nodiscard]] int show_config(const ConfigRequest& request);

struct SampleRequest {
  std::filesystem::path config;
  std::vector<std::string> overrides;
  std::filesystem::path checkpoint;  ///< empty: the newest sealed one of the run
  std::string prompt;
  std::uint32_t tokens = 200;
  std::uint64_t seed = 0;
  double temperature = 0.8;
  bool untrained = false;  ///< from the initial weights
};
/// Replaces this process by troupe-worker in sample mode; returns only if that fails.
[[nodiscard]] int sample(const SampleRequest& request);

struct InspectDataRequest {
  std::filesystem::path config;
  std::vector<std::string> overrides;
  std::uint64_t step = 1;
  std::uint32_t rank = 0;
  std::optional<std::uint32_t> processes;  ///< --nproc
};
/// Prints what a rank saw or will see in a step: rows, documents, tokens, text, and the digest that is in the metrics.
[[nodiscard]] int inspect_data(const InspectDataRequest& request);

struct GenerateRequest {
  std::filesystem::path checkpoint;  ///< …/step-N, or a folder of Hugging Face
  std::string prompt;
  std::string ids;  ///< the prompt as token ids with commas between; then ids are printed
  std::uint32_t tokens = 100;
  double temperature = 0, top_p = 1;
  std::uint64_t seed = 0;
  std::vector<std::string> overrides;
};
/// Replaces this process by troupe-worker in its generating mode; returns only if that fails.
[[nodiscard]] int generate_text(const GenerateRequest& request);

struct ConvertRequest {
  std::filesystem::path checkpoint;  ///< …/step-N
  std::string to = "hf";
  std::filesystem::path out;
  std::string dtype;                ///< float32, bfloat16, float16; empty: as the checkpoint has it
  std::filesystem::path tokenizer;  ///< folder whose tokenizer files are copied; empty: the one that the run began from
  std::uint64_t most_file_mib = 5120;
};
/// Writes the weights of a sealed checkpoint for another program.
[[nodiscard]] int convert_weights(const ConvertRequest& request);

struct TokenizeRequest {
  std::filesystem::path config;
  std::vector<std::string> overrides;
  std::filesystem::path folder;  ///< where the token shards go
  unsigned threads = 0;          ///< 0: as many as the machine has
  std::uint64_t part_mib = 32;   ///< text of one shard
};
/// Makes token shards of the configuration's texts; goes on where an earlier call was stopped.
[[nodiscard]] int tokenize(const TokenizeRequest& request);

struct TraceRequest {
  std::filesystem::path run;      ///< the run's folder
  std::filesystem::path out;      ///< Chrome's format; empty: RUN/trace/trace.json
  std::string steps;              ///< "7" or "3..9"; empty: all that the ring buffers held
  std::filesystem::path html;     ///< one page instead; with `report` the report's
  bool report = false;            ///< what the steps' time went into, instead of a timeline
  bool json = false;              ///< the report as JSON
  std::filesystem::path compare;  ///< the report beside another run's
};
/// Joins the timelines of a run's ranks, live or finished, into one file, one page, or a report.
[[nodiscard]] int trace_run(const TraceRequest& request);

struct InspectRequest {
  std::filesystem::path run;  ///< the run's folder
  bool watch = false, json = false;
};
/// Prints what every rank of a live run is at; the first line names who holds the others up.
[[nodiscard]] int inspect(const InspectRequest& request);

struct InjectRequest {
  std::filesystem::path run;
  std::string rule;
};
/// Adds a fault rule to a live run.
[[nodiscard]] int inject(const InjectRequest& request);

struct SetRequest {
  std::filesystem::path run;
  std::vector<std::string> changes;  ///< KEY=VALUE
  bool dry_run = false;
};
/// Changes keys of a live run at one step on all ranks.
[[nodiscard]] int set_keys(const SetRequest& request);

struct ChaosRequest {
  std::filesystem::path config;
  std::vector<std::string> overrides;
  std::uint32_t processes = 2, rounds = 8;
  std::uint64_t seed = 1;
  double recover_within = 30;  ///< seconds
};
/// Trains again and again under random faults; says whether each run came to the same as an undisturbed one.
[[nodiscard]] int chaos(const ChaosRequest& request);

/// troupe join, troupe leave: ranks of a live run.
struct ResizeRequest {
  std::filesystem::path run;
  std::uint32_t ranks = 1;
  bool leave = false, dry_run = false;
};
[[nodiscard]] int resize(const ResizeRequest& request);

/// troupe-worker, which stands beside this program (TROUPE_WORKER overrides).
[[nodiscard]] std::filesystem::path worker_program();

/// RUN, a run's folder, where a command reads a configuration: its config.toml, with that folder as job.dump_folder, wherever the command is called. Anything
/// else stays as it was given.
void accept_run_folder(std::filesystem::path& config, std::vector<std::string>& overrides);

/// `--section.key value` and its other spellings, taken out of the arguments; the rest is what CLI11 reads. A value follows a key
/// unless it begins with "--", holds "=" already, or is a TOML file. `--job.config_file FILE` is FILE.
struct SplitArguments {
  std::vector<std::string> rest, overrides;
};
[[nodiscard]] SplitArguments split_overrides(const std::vector<std::string>& arguments);

}  // namespace troupe
