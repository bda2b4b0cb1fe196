#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "src/base/schema.hpp"
#include "src/checkpoint/settings.hpp"
#include "src/data/settings.hpp"
#include "src/faults/settings.hpp"
#include "src/metrics/settings.hpp"
#include "src/model/settings.hpp"
#include "src/optimizer/settings.hpp"
#include "src/runtime/settings.hpp"
#include "src/runtime/snapshot_policy.hpp"
#include "src/trace/settings.hpp"

namespace troupe {

/// [job]
struct JobSettings {
  std::string dump_folder = "./outputs";
  std::string description = "default job";
  std::string custom_import;  ///< path of a shared library; empty: none
};
void describe(Schema& schema, JobSettings& settings);

/// The mesh that a world of ranks gives; every degree at least 1, their product the world.
struct MeshDegrees {
  std::int64_t replicate = 1, shard = 1;
  [[nodiscard]] std::int64_t data_parallel() const noexcept { return replicate * shard; }
};

/// The whole configuration of a run, merged from defaults, a TOML file and the command line. A value: copies are independent.
struct JobConfig {
  JobSettings job;
  ModelSettings model;
  OptimizerSettings optimizer;
  ScheduleSettings lr_scheduler;
  TrainingSettings training;
  DataSettings data;
  ValidationSettings validation;
  ParallelismSettings parallelism;
  ActivationCheckpointSettings activation_checkpoint;
  Float8Settings float8;
  SlotSettings slots;
  RuntimeSettings runtime;
  CheckpointSettings checkpoint;
  MetricsSettings metrics;
  TraceSettings trace;
  ProfilingSettings profiling;
  CommSettings comm;
  ElasticSettings elastic;
  LiveSettings live;
  FaultSettings faults;
  DebugSettings debug;

  HeldValues held;  ///< of keys that nothing acts on

  struct Origin {
    KeySource source = KeySource::builtin;
    std::string where;
  };
  std::map<std::string, Origin> origins;  ///< of the keys that are not at their default's source
  std::vector<std::string> notes;         ///< one line each, to be shown at start: keys that have no effect

  std::vector<std::string> not_built;  ///< one line each, with the place: values that a run must refuse, because nothing acts on them yet

  /// `file` may be empty: defaults and overrides alone. `overrides`: the arguments "--section.key", "value", "--section.key=value", …
  /// The error holds one line for every problem: file, line and column, what was written, what was expected, the nearest known name.
  [[nodiscard]] static Result<JobConfig> load(const std::filesystem::path& file, const std::vector<std::string>& overrides = {});
  /// The same from text; `name` stands in messages.
  [[nodiscard]] static Result<JobConfig> parse(const std::string& text, const std::string& name, const std::vector<std::string>& overrides = {});
  [[nodiscard]] static JobConfig defaults() { return {}; }

  /// Nothing, or all of `not_built`: what a program asks before it trains. `load` accepts them, so that they can be shown and estimated.
  [[nodiscard]] Result<void> can_run() const;
  /// The merged result as TOML, every key written; `load` of it gives the same values (origins aside).
  [[nodiscard]] std::string to_toml() const;
  /// One line a key: name, value, source, class (- where nothing acts on it), state.
  [[nodiscard]] std::string table() const;
  /// XXH3-64 of the values in which all ranks must agree: all but folders and what only reports.
  [[nodiscard]] std::uint64_t hash() const;
  /// "optimizer.lr: 8e-04 before, 4e-04 now" for each key in which this differs from an earlier `to_toml`; what a resumed run prints,
  /// since the configuration wins over the checkpoint. Keys that may differ between ranks are left out; text that is not ours gives nothing.
  [[nodiscard]] std::vector<std::string> changes_since(const std::string& earlier_toml) const;
  /// The mesh for `world` ranks, or why there is none: all factors and their product.
  [[nodiscard]] Result<MeshDegrees> mesh(std::int64_t world) const;
  /// Rows of a step over this many data-parallel ranks.
  [[nodiscard]] std::int64_t global_rows(std::int64_t data_parallel_ranks) const noexcept;
  /// Micro-batches of one rank in one step for this many data-parallel ranks: as few as hold all rows.
  [[nodiscard]] std::int64_t micro_batches(std::int64_t data_parallel_ranks) const noexcept;
  /// Steps of the schedule: lr_scheduler.total_steps, else training.steps.
  [[nodiscard]] std::int64_t schedule_steps() const noexcept { return lr_scheduler.total_steps.value_or(training.steps); }

  /// When the launcher's memory takes snapshots of the training state.
  [[nodiscard]] SnapshotPolicy snapshots() const noexcept;

  /// Declares all keys on this object's members.
  void describe_to(Schema& schema);
  /// docs/config.md: every key with type, default, class, limits, aliases.
  [[nodiscard]] static std::string reference_markdown();
};

}  // namespace troupe
