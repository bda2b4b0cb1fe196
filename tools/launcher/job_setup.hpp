#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/coordinator.hpp"
#include "src/base/log.hpp"
#include "src/base/result.hpp"
#include "src/config/job_config.hpp"
#include "src/trace/ring_tracer.hpp"
#include "tools/launcher/job_checkpoints.hpp"
#include "tools/launcher/job_record.hpp"
#include "tools/launcher/live_config.hpp"
#include "tools/launcher/run_folder.hpp"

namespace troupe {

/// Does this configuration make a job of `world_size` ranks? The error names keys and numbers.
[[nodiscard]] Result<void> check_world(const JobConfig& config, std::uint32_t world_size);

/// The run's folder, locked, and the checkpoint to resume from.
struct PreparedRun {
  RunFolder folder;
  std::shared_ptr<JobCheckpoints> checkpoints;
  std::shared_ptr<LiveConfig> live;
  std::vector<std::string> warnings;
};
/// Decides between resume, fresh start and refusal, and writes config.toml. `config_file`: what the configuration was read from, which
/// stays as it is even if it lies in the run's folder; empty: none.
[[nodiscard]] Result<PreparedRun> prepare_run(const JobConfig& config, const std::filesystem::path& config_file, bool overwrite);

/// What the Coordinator needs of the configuration: steps, schedule, checkpoints, time limits.
[[nodiscard]] CoordinatorOptions coordinator_options(const JobConfig& config, const PreparedRun& run, std::uint32_t world_size, Log& log);

/// Journal, metrics.jsonl and console of a job. Owned by whoever hosts the Coordinator.
[[nodiscard]] Result<std::unique_ptr<JobRecord>> open_record(const JobConfig& config, const PreparedRun& run, std::uint32_t world_size, bool colour, Log& log,
                                                             Tracer* tracer, std::shared_ptr<StepTimes> step_times = nullptr);

/// May a live run of `ranks` ranks be changed so? The error names key or word, and why not. What takes a new epoch is planned for all ranks here, not in the
/// Coordinator: blocks for as long as that takes; notes in the request what it found.
[[nodiscard]] Result<void> check_change(const LiveConfig& live, ChangeRequest& request, std::uint32_t ranks);

/// A name that no other run has.
[[nodiscard]] std::string new_job_name();

/// The launcher's part of the timeline; null with trace.enable = false.
[[nodiscard]] std::unique_ptr<RingTracer> launcher_tracer(const JobConfig& config);
/// Writes it into RUN/trace/launcher.json, beside what the ranks have written. A problem is a warning.
void write_launcher_trace(const RingTracer* tracer, const RunFolder& folder, Log& log);

/// The end of a job as one line (steps, last loss, where checkpoint, metrics and trace are; or the fault) and as an exit code: 0 done or
/// stopped on request, 1 a fault, or lines of metrics or journal that no disk took.
[[nodiscard]] int report_end(const JobEnd& end, const JobConfig& config, Step last, const RunFolder& folder, const JobRecord& record, Log& log);

}  // namespace troupe
