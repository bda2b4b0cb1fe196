#include "tools/foresight/estimate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <utility>

#include "src/data/open_documents.hpp"
#include "src/model/families.hpp"
#include "src/model/shard_memory.hpp"
#include "tools/launcher/kernel_scratch.hpp"

namespace troupe {
namespace {

constexpr std::int64_t llama3_vocabulary = 128256;  ///< of the tokenizer that every Llama 3 flavour is made for

/// The configuration as ranks would run it that only share the model's state, and what is left to divide.
struct PlainRun {
  JobConfig config;
  std::uint32_t ranks = 1;
  UnbuiltDegrees unbuilt;
  std::vector<std::string> notes;
};

Result<void> split_layers(PlainRun& plain) {
  const auto vocabulary = vocabulary_of(plain.config.data, plain.config.model.hf_assets_path);
  if (!vocabulary) return vocabulary.error();
  const auto model = describe_model(plain.config.model, *vocabulary);
  if (!model) return model.error();
  const std::int64_t stages = plain.unbuilt.pipeline;
  if (stages > model->layers) return Error{fmt::format("parallelism.pipeline_parallel_degree = {}, but the model has {} layers", stages, model->layers)};
  plain.config.model.n_layers = (model->layers + stages - 1) / stages;
  // The first stage holds one micro-batch for each stage in flight.
  std::int64_t rows = 1;
  if (const auto held = plain.config.held.find("parallelism.pipeline_parallel_microbatch_size"); held != plain.config.held.end())
    rows = std::max<std::int64_t>(1, std::atoll(held->second.toml().c_str()));
  plain.config.training.local_batch_size = std::min(plain.config.training.local_batch_size, rows * stages);
  plain.config.training.global_batch_size = -1;
  plain.notes.push_back(fmt::format("pipeline of {} stages, not built: one stage of {} layers, with embedding and head, {} rows in flight", stages,
                                    *plain.config.model.n_layers, plain.config.training.local_batch_size));
  return {};
}

Result<PlainRun> plain_run(const JobConfig& config, std::uint32_t ranks) {
  PlainRun plain{.config = config, .ranks = ranks, .unbuilt = {}, .notes = {}};
  ParallelismSettings& p = plain.config.parallelism;
  plain.unbuilt = {p.tensor_parallel_degree, p.context_parallel_degree, p.pipeline_parallel_degree, p.expert_parallel_degree};
  ModelSettings& shape = plain.config.model;
  if (shape.hf_assets_path && !std::filesystem::exists(*shape.hf_assets_path)) {
    shape.hf_assets_path.reset();
    if (!shape.vocab_size) plain.notes.push_back(fmt::format("the vocabulary is taken to be Llama 3's, {} tokens", llama3_vocabulary));
    shape.vocab_size = shape.vocab_size.value_or(llama3_vocabulary);
  }
  if (!plain.unbuilt.any()) return plain;
  p.tensor_parallel_degree = p.context_parallel_degree = p.pipeline_parallel_degree = p.expert_parallel_degree = 1;
  const std::int64_t others = plain.unbuilt.tensor * plain.unbuilt.pipeline, parts = plain.unbuilt.tensor * plain.unbuilt.context;
  if (ranks % (others * plain.unbuilt.context) != 0)
    return Error{fmt::format("{} ranks do not divide by tensor {} x pipeline {} x context {}; choose --ranks", ranks, plain.unbuilt.tensor,
                             plain.unbuilt.pipeline, plain.unbuilt.context)};
  if (plain.config.training.seq_len % parts != 0)
    return Error{fmt::format("training.seq_len = {} does not divide by tensor {} x context {}", plain.config.training.seq_len, plain.unbuilt.tensor,
                             plain.unbuilt.context)};
  plain.ranks = static_cast<std::uint32_t>(ranks / others);
  if (p.data_parallel_shard_degree > 0) p.data_parallel_shard_degree *= plain.unbuilt.context;
  plain.config.training.seq_len /= parts;
  if (plain.unbuilt.tensor > 1)
    plain.notes.push_back(fmt::format("tensor parallelism of {}, not built: state, slots and activations of a rank are 1/{} of the layer's",
                                      plain.unbuilt.tensor, plain.unbuilt.tensor));
  if (plain.unbuilt.context > 1)
    plain.notes.push_back(fmt::format("context parallelism of {}, not built: a rank has 1/{} of each sequence", plain.unbuilt.context, plain.unbuilt.context));
  if (plain.unbuilt.expert > 1) plain.notes.push_back(fmt::format("expert parallelism of {}, not built: left out", plain.unbuilt.expert));
  if (plain.unbuilt.pipeline > 1) {
    if (auto split = split_layers(plain); !split) return split.error();
  }
  return plain;
}

RankMemory memory_of(const Estimate& e, const JobConfig& config, const JobConfig& plain) {
  RankMemory m;
  const auto tensor = static_cast<std::size_t>(e.unbuilt.tensor);
  const EdgeLayout edges = edges_of(e.job, e.training, config.checkpoint.saves() ? state_bytes(e.job, e.training) : 0);
  const auto edge = [&edges](EdgeKind kind) { return edges.of(kind).stride * edges.of(kind).slots; };
  for (const MemoryItem& item : e.training.memory) {
    if (item.per_slot) continue;
    if (item.kind == "fp32 masters")
      m.weights = item.bytes / tensor;
    else if (item.kind == "optimizer moments")
      m.optimizer = item.bytes / tensor;
    else if (item.kind == "averages of weights")
      m.averages = item.bytes / tensor;
    else if (item.kind == "gradient shards")
      m.gradients = item.bytes / tensor;
    else if (item.kind == "sums of micro-batches")
      m.sums = item.bytes / tensor;
    else if (item.kind == "saved activations")
      m.activations = item.bytes;
    else if (item.of_arena)
      m.workspace += item.bytes;
    else if (item.placement == Placement::host)
      m.host_others += item.bytes;
    else
      m.others += item.bytes;
  }
  m.host_state = e.job.options.offload;
  m.batches = edge(EdgeKind::batches) * tensor;
  m.weight_slots = edge(EdgeKind::weights) / tensor;
  m.gradient_slots = edge(EdgeKind::gradients) / tensor;
  m.snapshot_slots = edge(EdgeKind::snapshots) / tensor;
  if (const SnapshotPolicy snapshots = plain.snapshots(); snapshots.keep_every > 0) m.kept = snapshots.slots() * state_bytes(e.job, e.training) / tensor;
  if (config.elastic.recovers() && e.ranks > e.cluster.network.ranks_per_host) m.copied = m.kept;
  if (!e.cluster.device.gpu()) return m;
  m.library = static_cast<std::size_t>(e.cluster.device.library_gib * 1073741824.0);
  m.scratch = kernel_scratch_of(e.training);
  return m;
}

std::vector<CollectiveTotal> collectives_of(const Estimate& e) {
  std::map<OperationKind, CollectiveTotal> totals;
  for (const PlannedOperation& operation : e.job.plans.train.operations) {
    if (operation.communicator == CommunicatorKind::none) continue;
    CollectiveTotal& total = totals[operation.fact.kind];
    total.kind = operation.fact.kind;
    total.communicator = operation.communicator;
    ++total.calls;
    total.largest = std::max(total.largest, operation.bytes);
    const std::uint64_t shards = e.job.options.world, replicas = e.job.options.replicas;
    std::uint64_t part = 0, count = 0;
    if (operation.fact.kind == OperationKind::gather || operation.fact.kind == OperationKind::reduce) {
      for (const ParameterSlot& slot : e.training.layout.units[operation.fact.unit.value()].slots) {
        const LaidParameter& p = e.training.layout.parameters[slot.parameter];
        const auto elements = static_cast<std::uint64_t>(p.rows_per_rank * p.description.cols);
        part += elements * size_of(slot.stored);
        count += elements;
      }
    }
    switch (operation.fact.kind) {
      case OperationKind::gather: total.received += part * (shards - 1); break;
      case OperationKind::reduce: total.received += count * sizeof(float) * (shards - 1); break;
      case OperationKind::all_reduce: total.received += 2 * operation.bytes * (replicas - 1) / replicas; break;
      default: break;
    }
  }
  std::vector<CollectiveTotal> all;
  for (auto [kind, total] : totals) {
    total.largest /= static_cast<std::uint64_t>(e.unbuilt.tensor);
    total.received /= static_cast<std::uint64_t>(e.unbuilt.tensor);
    all.push_back(total);
  }
  return all;
}

RooflineStep roofline_of(const Estimate& e, double peak) {
  RooflineStep step;
  const OperationCosts costs({e.training, e.job.options, e.cluster, state_bytes(e.job, e.training)});
  double compute = 0;
  for (std::size_t u = 0; u < e.training.units.size(); ++u) {
    for (const bool backward : {false, true}) step.compute.add(time_of(e.training, u, backward, e.cluster.device), e.job.options.micro_batches);
  }
  compute = step.compute.total();
  for (const PlannedOperation& operation : e.job.plans.train.operations) {
    const double time = seconds_of(costs.of(operation));
    const bool of_state = operation.lane == LaneKind::optimizer || operation.fact.kind == OperationKind::verdict;
    const bool in_backward = of_state && e.job.options.step_in_backward && operation.fact.unit != Unit{0};
    if (of_state && !in_backward)
      step.end += time;
    else if (operation.lane == LaneKind::comm)
      step.communication += time;
  }
  step.step = std::max(compute, step.communication) + step.end;
  const double tokens = static_cast<double>(e.job.options.batch.tokens()) * e.job.options.micro_batches;
  step.tokens_per_second = step.step > 0 ? tokens / step.step : 0;
  const auto part = [&](double flops) { return peak > 0 ? flops * step.tokens_per_second / peak : std::numeric_limits<double>::quiet_NaN(); };
  step.mfu = part(e.flops_per_token);
  step.mfu_causal = part(e.flops_per_token_causal);
  return step;
}

}  // namespace

std::size_t state_bytes(const TrainingJob& job, const TrainingEstimate& estimate) {
  const ShardMemory::Bytes bytes = ShardMemory::bytes_of(estimate.layout, false, job.options.ema_decay > 0);
  return bytes.masters + bytes.moments + bytes.averages;
}

std::size_t RankMemory::planned() const noexcept {
  const std::size_t state = weights + optimizer + averages;
  return (host_state ? 0 : state) + gradients + sums + others + activations + workspace + batches + weight_slots + gradient_slots;
}

std::size_t RankMemory::host() const noexcept { return (host_state ? weights + optimizer + averages : 0) + snapshot_slots + kept + copied + host_others; }

bool Estimate::fits() const noexcept {
  return cluster.device.memory_gib <= 0 || static_cast<double>(memory.device()) <= cluster.device.memory_gib * 1073741824.0;
}

Result<Estimate> estimate_run(const JobConfig& config, std::uint32_t ranks, const ClusterModel& cluster) {
  auto plain = plain_run(config, ranks);
  if (!plain) return plain.error();
  const auto limit = static_cast<std::size_t>(cluster.device.gpu() ? cluster.device.memory_gib * 1073741824.0 : 0);
  auto job = plan_training(plain->config, 0, plain->ranks, limit);
  if (!job) return job.error();
  JobConfig whole = config;
  whole.model.vocab_size = plain->config.model.vocab_size;
  whole.model.hf_assets_path = plain->config.model.hf_assets_path;
  const auto vocabulary = vocabulary_of(whole.data, whole.model.hf_assets_path);
  if (!vocabulary) return vocabulary.error();
  const auto model = describe_model(whole.model, *vocabulary);
  if (!model) return model.error();
  Estimate e;
  e.ranks = ranks;
  e.cluster = cluster;
  e.job = std::move(*job);
  try {
    e.training = estimate_training(e.job.model, e.job.options);
  } catch (const std::invalid_argument& problem) {
    return Error{problem.what()};
  }
  e.unbuilt = plain->unbuilt;
  e.notes = plain->notes;
  e.not_built = config.not_built;
  e.parameters = model->parameter_count();
  e.flops_per_token = model->flops_per_token(config.training.seq_len);
  e.flops_per_token_causal = model->causal_flops_per_token(config.training.seq_len);
  e.memory = memory_of(e, config, plain->config);
  e.collectives = collectives_of(e);
  const DeviceModel& device = cluster.device;
  if (!e.unbuilt.any()) e.roofline = roofline_of(e, device.gpu() ? device.bf16_tflops * 1e12 : 0);
  return e;
}

}  // namespace troupe
