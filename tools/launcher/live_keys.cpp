#include "tools/launcher/live_keys.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "src/config/job_config.hpp"

namespace troupe {
namespace {

constexpr std::array<std::string_view, 16> by_step{"optimizer.lr",
                                                   "lr_scheduler.warmup_steps",
                                                   "lr_scheduler.decay_ratio",
                                                   "lr_scheduler.decay_type",
                                                   "lr_scheduler.min_lr_factor",
                                                   "lr_scheduler.total_steps",
                                                   "checkpoint.interval",
                                                   "checkpoint.keep_latest_k",
                                                   "validation.freq",
                                                   "training.steps",
                                                   "training.guard.nonfinite",
                                                   "training.guard.spike_factor",
                                                   "training.guard.spike",
                                                   "training.guard.rollbacks",
                                                   "comm.train_timeout_seconds",
                                                   "metrics.log_freq"};

/// What a rank is built from.
constexpr std::array<std::string_view, 36> by_epoch{
    "model.converters",
    "float8.enable_fsdp_float8_all_gather",
    "float8.precompute_float8_dynamic_scale_for_fsdp",
    "float8.recipe_name",
    "float8.filter_fqns",
    "float8.emulate",
    "optimizer.beta1",
    "optimizer.beta2",
    "optimizer.eps",
    "optimizer.weight_decay",
    "optimizer.decay_norms_and_biases",
    "optimizer.param_groups",
    "optimizer.early_step_in_backward",
    "training.local_batch_size",
    "training.global_batch_size",
    "training.max_norm",
    "training.mixed_precision_param",
    "training.mixed_precision_reduce",
    "training.weight_gradients",
    "training.enable_cpu_offload",
    "parallelism.data_parallel_replicate_degree",
    "parallelism.data_parallel_shard_degree",
    "parallelism.fsdp_reshard_after_forward",
    "parallelism.reduce_gradients",
    "slots.batches",
    "slots.weights",
    "slots.gradients",
    "slots.snapshots",
    "runtime.run_ahead",
    "comm.collectives",
    "activation_checkpoint.mode",
    "activation_checkpoint.selective_ac_option",
    "activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns",
    "activation_checkpoint.memory_budget",
    "activation_checkpoint.memory_limit_gib",
    "debug.deterministic",
};

/// Keys that a user may look for here, and what stands in the way.
constexpr std::array<std::pair<std::string_view, std::string_view>, 8> reasons{{
    {"runtime.device", "it is chosen when the processes start"},
    {"runtime.threads_per_rank", "it is chosen when the processes start"},
    {"data.loader_hosts", "loader processes are started with the run"},
    {"comm.interface", "the processes are bound to it when they start"},
    {"faults.rules", "`troupe inject` adds rules to a live run"},
    {"optimizer.ema_decay", "it adds or drops part of the training state"},
    {"elastic.policy", "the launcher takes it when the run starts"},
    {"elastic.memory_interval", "the launcher takes it when the run starts"},
}};

std::string listed(std::span<const std::string_view> keys) {
  std::string all;
  for (const std::string_view key : keys) all += (all.empty() ? "" : ", ") + std::string(key);
  return all;
}

bool among(std::span<const std::string_view> keys, std::string_view key) { return std::ranges::find(keys, key) != keys.end(); }

}  // namespace

std::string live_keys(LiveKind kind) { return kind == LiveKind::step ? listed(by_step) : listed(by_epoch); }

std::string canonical_key(std::string_view written) {
  JobConfig none;
  Schema schema;
  none.describe_to(schema);
  const Key* const key = schema.find(written);
  return key == nullptr ? std::string(written) : key->name;
}

Result<LiveKind> live_kind(std::string_view written) {
  JobConfig none;
  Schema schema;
  none.describe_to(schema);
  const Key* const key = schema.find(written);
  if (key == nullptr) {
    const std::string near = schema.nearest_key(written);
    return Error{fmt::format("{}: no such key{}", written, near.empty() ? "" : "; did you mean " + near + "?")};
  }
  if (among(by_step, key->name)) return LiveKind::step;
  if (among(by_epoch, key->name)) return LiveKind::epoch;
  if (key->key_class == KeyClass::frozen) return Error{fmt::format("{} is frozen: it belongs to the run and cannot be changed in it", key->name)};
  const auto reason = std::ranges::find(reasons, std::string_view(key->name), &std::pair<std::string_view, std::string_view>::first);
  return Error{fmt::format(
      "{} ({}) cannot be changed in a live run{}; stop it (SIGTERM saves) and go on with the new value. `troupe set --help` lists the keys that can", key->name,
      name_of(key->key_class), reason == reasons.end() ? " by this version" : ": " + std::string(reason->second))};
}

}  // namespace troupe
