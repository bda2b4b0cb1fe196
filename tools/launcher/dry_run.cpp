#include "tools/launcher/dry_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <vector>

#include "src/metrics/console_line.hpp"
#include "src/runtime/describe.hpp"
#include "src/runtime/edge_memory.hpp"

namespace troupe {
namespace {

constexpr std::int64_t llama3_vocabulary = 128256;  ///< of the tokenizer that every Llama 3 flavour is made for
double mebibytes(std::size_t bytes) { return static_cast<double>(bytes) / 1048576.0; }

/// The configuration with all ranks sharding the model, where it asks for more; `told` says what was left out.
JobConfig without_other_parallelism(const JobConfig& config, std::string& told) {
  JobConfig plain = config;
  ParallelismSettings& p = plain.parallelism;
  for (std::int64_t* degree : {&p.context_parallel_degree, &p.tensor_parallel_degree, &p.pipeline_parallel_degree, &p.expert_parallel_degree}) {
    if (std::exchange(*degree, 1) == 1) continue;
    told = "the plan and the memory below are those of ranks that shard the model and share nothing else\n";
    p.data_parallel_shard_degree = -1;
  }
  if (plain.model.hf_assets_path && !std::filesystem::exists(*plain.model.hf_assets_path)) {
    plain.model.hf_assets_path.reset();
    if (!plain.model.vocab_size) told += fmt::format("the vocabulary is taken to be Llama 3's, {} tokens\n", llama3_vocabulary);
    plain.model.vocab_size = plain.model.vocab_size.value_or(llama3_vocabulary);
  }
  return plain;
}

std::string memory_text(const TrainingJob& job, const TrainingEstimate& estimate, bool snapshots) {
  std::string text = "memory of a rank\n";
  std::size_t state = 0, device = 0, host = 0;
  for (const MemoryItem& item : estimate.memory) {
    if (item.kind == "fp32 masters" || item.kind == "optimizer moments") state += item.bytes;
    if (item.per_slot) continue;
    (item.placement == Placement::host ? host : device) += item.bytes;
    text += fmt::format("  {:<28} {:>14.3f} MiB{}\n", item.kind, mebibytes(item.bytes), item.placement == Placement::host ? "   host" : "");
  }
  const EdgeLayout edges = edges_of(job, estimate, snapshots ? state : 0);
  for (const EdgeLayout::Region& region : edges.regions) {
    if (region.slot_bytes == 0) continue;
    text += fmt::format("  edge {:<23} {:>14.3f} MiB   {} slots of {:.3f} MiB{}\n", name_of(region.edge), mebibytes(region.stride * region.slots), region.slots,
                        mebibytes(region.slot_bytes), region.placement == Placement::host ? ", host" : "");
  }
  return text + fmt::format("  {:<28} {:>14.3f} MiB   and {:.3f} MiB of the host\n", "all, on the device", mebibytes(device + edges.device_bytes),
                            mebibytes(host + edges.host_bytes));
}

/// "a, b, c"; of many the first, the last and how many.
std::string joined(const std::vector<std::string>& parts) {
  if (parts.size() > 4) return fmt::format("{} … {} ({})", parts.front(), parts.back(), parts.size());
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

std::string plan_text(const Plan& plan) {
  std::vector<std::array<std::string, 6>> rows{{"#", "operation", "lane", "waits for", "slots", "letters that leave when it is done"}};
  for (std::uint32_t i = 0; i < plan.operations.size(); ++i) {
    const PlannedOperation& operation = plan.operations[i];
    std::vector<std::string> inputs, slots;
    for (const OperationIndex input : operation.after) inputs.push_back(plan[input].name());
    for (const Fact& input : operation.after_previous) inputs.push_back(describe_as_input(input) + " of the step before");
    if (operation.takes) slots.push_back(fmt::format("takes {}", name_of(*operation.takes)));
    for (const OperationIndex producer : operation.last_reads) slots.push_back("frees that of " + plan[producer].name());
    std::string name = operation.name();
    if (operation.communicator != CommunicatorKind::none)
      name += fmt::format(" [{}, {:.3f} MiB]", name_of(operation.communicator), static_cast<double>(operation.bytes) / 1048576.0);
    rows.push_back({std::to_string(i), std::move(name), name_of(operation.lane), joined(inputs), joined(slots), letters_after(plan, OperationIndex{i})});
  }
  std::array<std::size_t, 6> width{};
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line = "  ";
    for (std::size_t i = 0; i < row.size(); ++i) line += row[i] + std::string(width[i] + 2 - row[i].size(), ' ');
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

}  // namespace

std::string letters_after(const Plan& plan, OperationIndex index) {
  const PlannedOperation& operation = plan[index];
  const auto last_of = [&plan](OperationKind kind) {
    for (std::uint32_t i = static_cast<std::uint32_t>(plan.operations.size()); i-- > 0;)
      if (plan.operations[i].fact.kind == kind) return OperationIndex{i};
    return OperationIndex{0};
  };
  switch (operation.fact.kind) {
    case OperationKind::load: return "BatchReady data_loader → compute";
    case OperationKind::gather: return "WeightsGathered sharding → compute";
    case OperationKind::backward: {
      const bool ends = std::ranges::any_of(operation.last_reads, [&](OperationIndex producer) { return plan[producer].takes == EdgeKind::batches; });
      return std::string(ends ? "MicroBatchDone, " : "") + "GradientReady compute → sharding";
    }
    case OperationKind::optimize:
      return index == last_of(OperationKind::optimize) ? "StepReport sharding → checkpoint, metrics, supervisor → coordinator" : std::string{};
    case OperationKind::snapshot: return "SnapshotTaken checkpoint → sharding";
    case OperationKind::save: return "ShardSaved checkpoint → coordinator → CheckpointSealed";
    default: return {};
  }
}

Result<std::string> describe_dry_run(const JobConfig& config, std::uint32_t world_size) {
  std::string text, told;
  for (const std::string& note : config.notes) text += "note: " + note + "\n";
  for (const std::string& line : config.not_built) text += "not built yet: " + line + "\n";
  const JobConfig plain = without_other_parallelism(config, told);
  text += told;
  auto job = plan_training(plain, 0, world_size);
  if (!job) return job.error();
  const TrainingEstimate estimate = estimate_training(job->model, job->options);
  const TrainingOptions& options = job->options;
  text += fmt::format("model {}: {} parameters, {:.1f} MFLOP a token ({:.1f} with the half of attention that causality leaves)\n", job->model.name,
                      with_thousands(static_cast<double>(estimate.parameter_count), 0), estimate.flops_per_token / 1e6,
                      job->model.causal_flops_per_token(options.batch.seq_len) / 1e6);
  text += fmt::format("mesh: dp_replicate {} × dp_shard {} = {} ranks; {} micro-batches of {} × {} tokens a rank and step\n", options.replicas, options.world,
                      world_size, options.micro_batches, options.batch.rows, options.batch.seq_len);
  text += "\n" + memory_text(*job, estimate, !job->plans.train_and_snapshot.operations.empty());
  text += fmt::format("\nplan of a step, the same on every rank: {} operations in their order of issue; checked for {} ranks with these slots\n",
                      job->plans.train.operations.size(), world_size);
  text += plan_text(job->plans.train);
  if (const Plan& snapshot = job->plans.train_and_snapshot; !snapshot.operations.empty()) {
    text += fmt::format("\nplan of a step with a snapshot: {} operations, also\n", snapshot.operations.size());
    for (std::uint32_t i = 0; i < snapshot.operations.size(); ++i) {
      const PlannedOperation& operation = snapshot.operations[i];
      if (!job->plans.train.find(operation.fact))
        text += fmt::format("  {:>3}  {} ({}): {}\n", i, operation.name(), name_of(operation.lane), letters_after(snapshot, OperationIndex{i}));
    }
  }
  return text + "\nnothing was started\n";
}

}  // namespace troupe
