#include "tools/worker/start_lines.hpp"

#include <fmt/format.h>

#include <sstream>

#include "src/metrics/console_line.hpp"
#include "tools/launcher/kernel_scratch.hpp"

namespace troupe {
namespace {

double mebibytes(std::size_t bytes) { return static_cast<double>(bytes) / 1048576.0; }

void tell_determinism(Log& log, const DebugSettings& debug, const DeviceInfo& device) {
  if (device.id.kind == DeviceKind::cpu) {
    const bool asked = debug.deterministic.value_or(true);
    return log.info(
        fmt::format("determinism: the same configuration repeats bit for bit{}", asked ? "" : "; always so on this device, whatever debug.deterministic says"));
  }
  if (debug.deterministic.value_or(false))
    return log.info("determinism: the same configuration repeats bit for bit; attention without atomics and matrix algorithms that are not timed cost speed");
  log.info(
      "determinism: runs differ in their last bits: attention's backward adds in any order, and matrix algorithms are chosen by their time; "
      "debug.deterministic = true repeats");
}

void tell_precision(Log& log, const JobConfig& config, const TrainingJob& job, const TrainingModel& model, const DeviceInfo& device) {
  log.info(fmt::format("precision: masters float32, compute {}, gradients reduced in float32", config.training.mixed_precision_param));
  tell_determinism(log, config.debug, device);
  if (!job.options.float8.enable) return;
  const auto& selection = model.estimate().layout.float8;
  log.info(fmt::format("float8: {} linear layers, recipe {}{}{}", selection.converted.size(), name_of(job.options.float8.recipe),
                       job.options.float8.gathers_codes() ? ", gathered as one byte a value" : "",
                       device.fp8_emulated ? "; products emulated, as always on this device" : ""));
  for (const auto& skipped : selection.skipped)
    log.info(fmt::format("float8: {} stays in {}: {}", skipped.name, config.training.mixed_precision_param, skipped.why));
}

void tell_mesh(Log& log, const JobConfig& config, const TrainingJob& job, std::uint32_t world_size) {
  const TrainingOptions& o = job.options;
  const std::int64_t rows = config.global_rows(world_size), held = std::int64_t{o.batch.rows} * o.micro_batches * world_size;
  log.info(fmt::format("mesh: dp_replicate {} × dp_shard {} = {} ranks; {} micro-batch{} of {} × {} tokens a rank and step{}", o.replicas, o.world, world_size,
                       o.micro_batches, o.micro_batches == 1 ? "" : "es", o.batch.rows, o.batch.seq_len,
                       rows < held ? fmt::format(", {} rows of the {} padding", held - rows, held) : ""));
  log.info(fmt::format("mesh: weights {}; gradients {}{}{}", job.shape.weights_resident ? "gathered once a step and kept" : "gathered for forward and backward",
                       job.shape.reduce_last ? "summed over micro-batches, reduced with the last" : "reduced after each micro-batch",
                       o.replicas > 1 ? ", summed over replicas once a step" : "", o.step_in_backward ? "; each layer is updated in the backward pass" : ""));
}

void tell_recompute(Log& log, const ActivationCheckpointSettings& settings, const TrainingEstimate& estimate) {
  double forward = 0, again = 0;
  for (const UnitCost& unit : estimate.units) {
    forward += unit.forward_flops;
    again += unit.recomputed_flops;
  }
  std::string how = settings.mode;
  if (how == "selective") how += settings.selective_ac_option == "op" ? ", op" : ", every block of " + settings.selective_ac_option;
  if (how == "memory_budget") how += fmt::format(" {}", settings.memory_budget);
  log.info(fmt::format("activation checkpointing: {}; {:.1f} % of the forward pass is computed again; {:.3f} MiB of activations and working memory planned",
                       how, forward > 0 ? 100 * again / forward : 0.0, mebibytes(estimate.tapes.arena_bytes)));
}

void tell_memory(Log& log, const TrainingModel& model, const EdgeLayout& edges) {
  for (const MemoryItem& item : model.estimate().memory)
    if (!item.per_slot) log.info(fmt::format("memory: {:<28} {:10.3f} MiB", item.kind, mebibytes(item.bytes)));
  std::istringstream lines(edges.describe());
  for (std::string line; std::getline(lines, line);)
    if (!line.empty()) log.info("memory: " + line);
  log.info(fmt::format("memory: {:.3f} MiB of the device and {:.3f} MiB of the host planned a rank; a step allocates no more but its kernels' scratch, once",
                       mebibytes(model.device_bytes() + edges.device_bytes), mebibytes(model.allocated_bytes() - model.device_bytes() + edges.host_bytes)));
}

/// The lines that users of torchtitan look for in a log, in its words.
void tell_in_torchtitans_words(Log& log, const JobConfig& config, const TrainingJob& job, const TrainingModel& model, const DeviceInfo& device, Step first,
                               std::uint32_t world_size) {
  const TrainingOptions& o = job.options;
  log.info(fmt::format("Model {} size: {} total parameters", job.model.name, with_thousands(static_cast<double>(model.estimate().parameter_count), 0)));
  log.info(fmt::format("Building 2-D device mesh with ['dp_replicate', 'dp_shard'], [{}, {}]", o.replicas, o.world));
  if (device.peak_flops > 0) log.info(fmt::format("Peak FLOPS used for computing MFU: {:.3e}", device.peak_flops));
  log.info(fmt::format(
      "Trainer is initialized with local batch size {}, global batch size {}, gradient accumulation steps {}, sequence length {}, total steps {} (warmup {})",
      o.batch.rows, config.global_rows(world_size), o.micro_batches, o.batch.seq_len, config.training.steps, config.lr_scheduler.warmup_steps));
  log.info(fmt::format("Training starts at step {}", first.value()));
}

}  // namespace

void tell_start(Log& log, const JobConfig& config, const TrainingJob& job, const TrainingModel& model, const EdgeLayout& edges, const DeviceInfo& device,
                Step first, std::uint32_t world_size) {
  log.info("Starting job: " + config.job.description);
  log.info(fmt::format("model {}: {} parameters, {:.1f} MFLOP a token", job.model.name,
                       with_thousands(static_cast<double>(model.estimate().parameter_count), 0), model.estimate().flops_per_token / 1e6));
  log.info(fmt::format("device: {}, peak {}", device.name,
                       device.peak_flops > 0 ? fmt::format("{:.1f} TFLOP/s", device.peak_flops / 1e12) : std::string{"unknown (mfu: N/A)"}));
  tell_precision(log, config, job, model, device);
  tell_mesh(log, config, job, world_size);
  log.info(fmt::format("plan: {} operations a step, {} with a snapshot; checked with {} batches, {} weights, {} gradients, {} snapshots slots",
                       job.plans.train.operations.size(), job.plans.train_and_snapshot.operations.size(), job.slots.batches, job.slots.weights,
                       job.slots.gradients, job.slots.snapshots));
  tell_recompute(log, config.activation_checkpoint, model.estimate());
  tell_memory(log, model, edges);
  tell_in_torchtitans_words(log, config, job, model, device, first, world_size);
}

void tell_predicted_memory(Log& log, const Device& device, const TrainingModel& model, const EdgeLayout& edges) {
  const MemoryReading now = device.measure_memory();
  if (now.in_use == 0) return;
  const auto gibibytes = [](std::size_t bytes) { return static_cast<double>(bytes) / 1073741824.0; };
  const std::size_t scratch = kernel_scratch_of(model.estimate()), own = now.in_use - now.scratch - device.allocated_bytes(Placement::device);
  log.info(fmt::format(
      "memory: {:.3f} GiB of the device predicted in use at most: {:.3f} planned, {:.3f} kernels' scratch, {:.3f} CUDA's and its libraries' own so far",
      gibibytes(now.in_use - now.scratch + edges.device_bytes + scratch), gibibytes(model.device_bytes() + edges.device_bytes), gibibytes(scratch),
      gibibytes(own)));
}

}  // namespace troupe
