#include "tools/worker/training_job.hpp"

#include <algorithm>
#include <vector>

#include "src/data/byte_tokenizer.hpp"
#include "src/model/families.hpp"
#include "src/optimizer/adamw_settings.hpp"

namespace troupe {
namespace {

/// Nominal rates for estimated costs. Plans must not depend on a measurement, so these are the same everywhere.
constexpr double nominal_flops_per_nano = 50.0, nominal_bytes_per_nano = 5.0;

Nanos cost_of(double work, double rate) { return Nanos{static_cast<Nanos::rep>(work / rate) + 1}; }

TrainingOptions options_of(const JobConfig& config, std::uint32_t micro_batches, std::uint32_t rank, std::uint32_t world) {
  TrainingOptions options;
  options.batch = {static_cast<std::uint32_t>(config.training.local_batch_size), static_cast<std::uint32_t>(config.training.seq_len)};
  options.micro_batches = micro_batches;
  options.rank = rank;
  options.world = world;
  options.compute = config.training.mixed_precision_param == "float32" ? DType::f32 : DType::bf16;
  options.float8 = {config.model.float8(), config.float8.filter_fqns, config.float8.enable_fsdp_float8_all_gather};
  options.optimizer = adamw_of(config.optimizer);
  options.max_norm = config.training.max_norm;
  return options;
}

PlanShape shape_of(const TrainingEstimate& estimate, const TrainingOptions& options) {
  PlanShape shape;
  shape.micro_batches = options.micro_batches;
  for (const UnitCost& cost : estimate.units) {
    UnitShape unit;
    unit.gather_bytes = cost.weights_bytes;
    unit.reduce_bytes = cost.gradients_bytes;
    unit.gather_dtype = options.compute;
    unit.forward = cost_of(cost.forward_flops, nominal_flops_per_nano);
    unit.backward = cost_of(cost.backward_flops, nominal_flops_per_nano);
    unit.gather = cost_of(static_cast<double>(cost.weights_bytes), nominal_bytes_per_nano);
    unit.reduce = cost_of(static_cast<double>(cost.gradients_bytes), nominal_bytes_per_nano);
    unit.optimize = cost_of(static_cast<double>(cost.parameters) * 16 / options.world, nominal_bytes_per_nano);
    shape.units.push_back(unit);
  }
  shape.units.front().backward_needs_weights = false;    // a scatter-add into the table's gradient
  shape.units.back().keeps_weights_for_backward = true;  // the loss stands between its forward and its backward
  shape.fp8_scales = options.float8.enable && !estimate.layout.float8.converted.empty();
  shape.scales_bytes = estimate.layout.float8.converted.size() * sizeof(float);
  return shape;
}

}  // namespace

Result<TrainingJob> plan_training(const JobConfig& config, std::uint32_t rank, std::uint32_t world) {
  const auto mesh = config.mesh(world);
  if (!mesh) return mesh.error();
  const auto micro_batches = config.micro_batches(mesh->data_parallel());
  if (!micro_batches) return micro_batches.error();
  auto model = describe_model(config.model, ByteTokenizer::vocab_size);
  if (!model) return model.error();
  TrainingJob job;
  job.model = std::move(model.value());
  job.options = options_of(config, static_cast<std::uint32_t>(*micro_batches), rank, world);
  job.slots = {static_cast<std::uint32_t>(config.slots.batches), static_cast<std::uint32_t>(config.slots.weights),
               static_cast<std::uint32_t>(config.slots.gradients), static_cast<std::uint32_t>(config.slots.snapshots)};
  job.shape = shape_of(estimate_training(job.model, job.options), job.options);
  auto plans = compile_plans(job.shape, job.slots, config.checkpoint.saves());
  if (!plans) return plans.error();
  job.plans = std::move(plans.value());
  // Every step kind beside itself and beside the other. All ranks have this plan and run it in lockstep: two show what more would.
  std::vector<Plan> steps{job.plans.train, job.plans.train};
  if (const Plan& snapshots = job.plans.train_and_snapshot; !snapshots.operations.empty()) steps.insert(steps.end(), {snapshots, snapshots, job.plans.train});
  if (auto checked = check_plans(std::vector<std::vector<Plan>>(std::min(world, 2U), steps), job.slots); !checked) return checked.error();
  return job;
}

LoaderOptions loader_options(const JobConfig& config, std::uint32_t rank, std::uint32_t world) {
  LoaderOptions options;
  options.layout = {static_cast<std::uint32_t>(config.training.local_batch_size), static_cast<std::uint32_t>(config.training.seq_len)};
  options.sampler = sampler_options(config.data, config.debug.seed, config.training.seq_len);
  options.rank = rank;
  options.ranks = world;
  if (const auto micro_batches = config.micro_batches(world)) options.micro_batches = static_cast<std::uint32_t>(*micro_batches);
  return options;
}

}  // namespace troupe
