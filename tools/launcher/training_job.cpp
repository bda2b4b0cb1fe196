#include "tools/launcher/training_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "src/checkpoint/agent_memory.hpp"
#include "src/data/open_documents.hpp"
#include "src/model/extension.hpp"
#include "src/model/families.hpp"
#include "src/optimizer/adamw_settings.hpp"
#include "tools/launcher/job_sizes.hpp"

namespace troupe {
namespace {

/// Nominal rates for estimated costs. Plans must not depend on a measurement, so these are the same everywhere.
constexpr double nominal_flops_per_nano = 50.0, nominal_bytes_per_nano = 5.0, nominal_memory_bytes_per_nano = 50.0;

Nanos cost_of(double work, double rate) { return Nanos{static_cast<Nanos::rep>(work / rate) + 1}; }

RecomputePolicy recompute_of(const ActivationCheckpointSettings& settings) {
  RecomputePolicy policy;
  if (settings.mode == "full") policy.mode = Recompute::full;
  if (settings.mode == "selective") policy.mode = settings.selective_ac_option == "op" ? Recompute::operations : Recompute::every;
  if (settings.mode == "memory_budget") policy.mode = Recompute::budget;
  if (settings.mode == "auto") policy.mode = Recompute::automatic;
  policy.every = settings.every_nth_block().value_or(1);
  policy.always_again = settings.per_op_sac_force_recompute_mm_shapes_by_fqns;
  policy.memory_budget = settings.memory_budget;
  return policy;
}

TrainingOptions options_of(const JobConfig& config, const MeshDegrees& mesh, std::uint32_t rank) {
  TrainingOptions options;
  options.batch = {static_cast<std::uint32_t>(config.training.local_batch_size), static_cast<std::uint32_t>(config.training.seq_len),
                   config.data.isolate_documents};
  options.micro_batches = static_cast<std::uint32_t>(config.micro_batches(mesh.data_parallel()));
  options.world = static_cast<std::uint32_t>(mesh.shard);
  options.replicas = static_cast<std::uint32_t>(mesh.replicate);
  options.rank = rank % options.world;
  options.replica = rank / options.world;
  if (const std::size_t sources = config.data.blend_weights.size(); sources > 1)
    options.sources = {.count = static_cast<std::uint32_t>(sources), .micro_batches = options.micro_batches, .rows = options.batch.rows};
  options.reduce_last = config.parallelism.reduce_gradients == "last";
  options.gradients_in_place = true;
  options.offload = config.training.enable_cpu_offload;
  options.nominal_tokens = static_cast<double>(config.global_rows(mesh.data_parallel()) * config.training.seq_len);
  options.compute = config.training.mixed_precision_param == "float32" ? DType::f32 : DType::bf16;
  options.gradient = config.training.weight_gradients == "bfloat16" ? DType::bf16 : DType::f32;
  options.float8 = {config.model.float8(), config.float8.filter_fqns, config.float8.enable_fsdp_float8_all_gather, float8_recipe(config.float8)};
  options.recompute = recompute_of(config.activation_checkpoint);
  options.optimizer = adamw_of(config.optimizer);
  options.groups = ParameterGroups::of(config.optimizer).value();  // checked with the configuration
  options.ema_decay = config.optimizer.ema_decay;
  options.max_norm = config.training.max_norm;
  options.step_in_backward = config.optimizer.early_step_in_backward;
  if (config.model.extensions) {
    if (const auto loss = config.model.extensions->losses.find(config.training.loss); loss != config.model.extensions->losses.end())
      options.loss = loss->second;
  }
  return options;
}

PlanShape shape_of(const TrainingEstimate& estimate, const TrainingOptions& options, const std::string& reshard, bool keeps) {
  PlanShape shape;
  shape.micro_batches = options.micro_batches;
  for (const UnitCost& cost : estimate.units) {
    UnitShape unit;
    unit.gather_bytes = cost.weights_bytes;
    unit.reduce_bytes = cost.gradients_bytes;
    unit.all_reduce_bytes = cost.shard_bytes;
    unit.gather_dtype = options.compute;
    unit.forward = cost_of(cost.forward_flops, nominal_flops_per_nano);
    unit.backward = cost_of(cost.backward_flops, nominal_flops_per_nano);
    unit.gather = cost_of(static_cast<double>(cost.weights_bytes), nominal_bytes_per_nano);
    unit.reduce = cost_of(static_cast<double>(cost.gradients_bytes), nominal_bytes_per_nano);
    unit.accumulate = cost_of(static_cast<double>(cost.gradients_bytes), nominal_memory_bytes_per_nano);
    unit.all_reduce = cost_of(static_cast<double>(cost.shard_bytes), nominal_bytes_per_nano);
    unit.optimize = cost_of(static_cast<double>(cost.parameters) * 16 / options.world, nominal_bytes_per_nano);
    shape.units.push_back(unit);
  }
  if (options.float8.gathers_codes()) {
    for (const LaidParameter& p : estimate.layout.parameters) shape.units[p.unit].scales_bytes += p.fp8 ? sizeof(float) : 0;
  }
  shape.units.front().backward_needs_weights = false;                   // a scatter-add into the table's gradient
  shape.units.back().keeps_weights_for_backward = reshard != "always";  // nothing but the loss stands between its forward and its backward
  shape.weights_resident = reshard == "never";
  shape.replicas = options.replicas;
  shape.reduce_last = options.sums_micro_batches();
  shape.step_in_backward = options.step_in_backward;
  shape.keeps = keeps;
  return shape;
}

/// Slots as configured; those of weights follow the plan where nothing is said.
Result<SlotCounts> slots_of(const JobConfig& config, std::size_t units) {
  const bool stay = config.parallelism.fsdp_reshard_after_forward == "never";
  const auto weights = static_cast<std::uint32_t>(config.slots.weights.value_or(stay ? static_cast<std::int64_t>(units) : 2));
  if (stay && weights < units)
    return Error{"parallelism.fsdp_reshard_after_forward = \"never\" keeps the weights of all " + std::to_string(units) +
                 " units (embedding, blocks, head), but slots.weights = " + std::to_string(weights) + ": leave slots.weights unset, or give at least " +
                 std::to_string(units)};
  return SlotCounts{static_cast<std::uint32_t>(config.slots.batches), weights, static_cast<std::uint32_t>(config.slots.gradients),
                    static_cast<std::uint32_t>(config.slots.snapshots)};
}

/// Mode auto: what the device's memory leaves for activations, beside state and slots, which do not depend on what is computed again.
Result<void> limit_arena(TrainingJob& job, const JobConfig& config, std::size_t device_memory) {
  const auto& settings = config.activation_checkpoint;
  if (job.options.recompute.mode != Recompute::automatic) return {};
  const auto limit = static_cast<std::size_t>(settings.memory_limit_gib ? *settings.memory_limit_gib * 1073741824.0 : 0.9 * static_cast<double>(device_memory));
  if (limit == 0) return {};
  TrainingOptions kept = job.options;
  kept.recompute = Recompute::none;
  const TrainingEstimate estimate = estimate_training(job.model, kept);
  std::size_t others = edges_of(job, estimate).device_bytes;
  for (const MemoryItem& item : estimate.memory) others += item.per_slot || item.of_arena || item.placement == Placement::host ? 0 : item.bytes;
  if (others >= limit)
    return Error{"activation_checkpoint.mode = \"auto\": a rank may plan " + std::to_string(limit) +
                 " bytes of the device's memory, but state and slots alone take " + std::to_string(others) +
                 ": raise activation_checkpoint.memory_limit_gib, use more ranks or fewer slots"};
  job.options.recompute.arena_limit = limit - others;
  return {};
}

/// Every step kind beside itself and beside the other, on as many ranks as show what more would: two of each group, in lockstep.
Result<void> check_together(const TrainingJob& job) {
  std::vector<Plan> steps{job.plans.train, job.plans.train};
  if (const Plan& snapshots = job.plans.train_and_snapshot; !snapshots.operations.empty()) steps.insert(steps.end(), {snapshots, snapshots, job.plans.train});
  for (const Plan* plan : {&job.plans.train_and_evaluate, &job.plans.train_snapshot_and_evaluate})
    if (!plan->operations.empty()) steps.insert(steps.end(), {*plan, *plan, job.plans.train});
  const std::uint32_t replicas = std::min(job.options.replicas, 2U), shards = std::min(job.options.world, 2U);
  return check_plans(std::vector<std::vector<Plan>>(std::size_t{replicas} * shards, steps), job.slots, replicas);
}

std::vector<std::string> names_of(const ModelDescription& model) {
  std::vector<std::string> names;
  for (const UnitDescription& unit : model.units) {
    for (const ParameterDescription& p : unit.parameters) {
      if (p.tied_to.empty()) names.push_back(p.name);
    }
  }
  return names;
}
constexpr std::uint32_t most_evaluation_batches = 2000;

}  // namespace

EdgeLayout edges_of(const TrainingJob& job, const TrainingEstimate& estimate, std::size_t snapshot_bytes) {
  return EdgeLayout::plan(job.slots, {.batches = largest_batch(job.options).bytes(),
                                      .weights = estimate.weights_slot_bytes(),
                                      .gradients = estimate.gradients_slot_bytes(),
                                      .snapshots = snapshot_bytes});
}

Result<TrainingJob> plan_training(const JobConfig& config, std::uint32_t rank, std::uint32_t world, std::size_t device_memory,
                                  std::uint32_t evaluation_batches) {
  if (evaluation_batches > most_evaluation_batches)
    return Error{"validation.steps = " + std::to_string(config.validation.steps) + ": that is " + std::to_string(evaluation_batches) +
                 " batches on each rank, and a plan holds at most " + std::to_string(most_evaluation_batches) +
                 "; set fewer, or raise validation.local_batch_size"};
  const auto mesh = config.mesh(world);
  if (!mesh) return mesh.error();
  const auto vocabulary = vocabulary_of(config.data, config.model.hf_assets_path);
  if (!vocabulary) return vocabulary.error();
  auto model = describe_model(config.model, *vocabulary);
  if (!model) return model.error();
  if (auto counted = check_sizes(config, *model, *mesh); !counted) return counted.error();
  TrainingJob job;
  job.model = std::move(model.value());
  job.options = options_of(config, *mesh, rank);
  if (const std::string pattern = job.options.groups.unused(names_of(job.model)); !pattern.empty())
    return Error{"optimizer.param_groups: no parameter of " + job.model.name + " is left for match=" + pattern + "; the first is " +
                 names_of(job.model).front()};
  if (job.options.step_in_backward && job.options.micro_batches > 1 && !job.options.reduce_last)
    return Error{"optimizer.early_step_in_backward: a step has " + std::to_string(job.options.micro_batches) +
                 " micro-batches, and gradients are reduced with each of them (parallelism.reduce_gradients = \"every\"), which takes memory for all layers: "
                 "set parallelism.reduce_gradients = \"last\", or one micro-batch (training.global_batch_size)"};
  if (job.options.gradient == DType::bf16 && (!job.options.gradients_stay() || job.options.replicas > 1 || job.options.compute != DType::bf16))
    return Error{
        fmt::format("training.weight_gradients = \"bfloat16\" is for steps in which nothing is added to a gradient: one rank, one micro-batch, "
                    "training.mixed_precision_param = "
                    "\"bfloat16\", optimizer.early_step_in_backward = false; ranks: {}, micro-batches: {}, type: {}, early step: {}. Change these, or set it "
                    "to \"float32\"",
                    world, job.options.micro_batches, config.training.mixed_precision_param, job.options.step_in_backward)};
  if (job.options.gradient == DType::bf16 && job.model.ties())
    return Error{
        "training.weight_gradients = \"bfloat16\" is for models in which no gradient is added to another, and the output's is added to the embedding's in " +
        job.model.name + ": set it to \"float32\", or model.tied_embeddings = false"};
  if (evaluation_batches > 0)
    job.options.evaluation = {static_cast<std::uint32_t>(config.validation.local_batch_size), static_cast<std::uint32_t>(config.validation.seq_len),
                              config.data.isolate_documents};
  if (const SnapshotPolicy snapshots = config.snapshots(); snapshots.slots() > AgentMemory::most_slots)
    return Error{
        fmt::format("training.guard.rollback_steps = {} with elastic.memory_interval = {} takes {} snapshots in memory, at most {} are held: raise "
                    "elastic.memory_interval",
                    snapshots.rollback_steps, snapshots.keep_every, snapshots.slots(), AgentMemory::most_slots)};
  const auto slots = slots_of(config, job.model.units.size());
  if (!slots) return slots.error();
  job.slots = *slots;
  if (auto limited = limit_arena(job, config, device_memory); !limited) return limited.error();
  try {
    job.shape =
        shape_of(estimate_training(job.model, job.options), job.options, config.parallelism.fsdp_reshard_after_forward, config.snapshots().keep_every > 0);
    job.shape.evaluation_batches = evaluation_batches;
  } catch (const std::invalid_argument& error) {
    return Error{error.what()};
  }
  auto plans = compile_plans(job.shape, job.slots, config.checkpoint.saves());
  if (!plans) return plans.error();
  job.plans = std::move(plans.value());
  if (auto checked = check_together(job); !checked) return checked.error();
  return job;
}

}  // namespace troupe
