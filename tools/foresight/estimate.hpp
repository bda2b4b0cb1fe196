#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "src/config/job_config.hpp"
#include "src/simulation/cluster_model.hpp"
#include "src/simulation/operation_costs.hpp"
#include "tools/launcher/training_job.hpp"

namespace troupe {

/// What some operations of one kind move in a step, for one rank.
struct CollectiveTotal {
  OperationKind kind{};
  CommunicatorKind communicator{};
  std::uint64_t calls = 0;     ///< a step
  std::uint64_t largest = 0;   ///< bytes of the largest call, all ranks' parts together (of a sum: one rank's)
  std::uint64_t received = 0;  ///< bytes that one rank receives in a step, as metrics.jsonl counts them
};

/// Degrees of parallelism that are asked for and not built: what they would divide is divided, and said so.
struct UnbuiltDegrees {
  std::int64_t tensor = 1, context = 1, pipeline = 1, expert = 1;
  [[nodiscard]] bool any() const noexcept { return tensor * context * pipeline * expert > 1; }
};

/// Memory of one rank, in bytes. All but scratch and library are what a run allocates, exactly.
struct RankMemory {
  std::size_t weights = 0, gradients = 0, optimizer = 0;  ///< shards; on the host where host_state
  std::size_t averages = 0, sums = 0, others = 0;         ///< moving averages; unsharded sums of micro-batches; counts, scales, rotary table
  std::size_t activations = 0, workspace = 0;             ///< saved for backward; all else of the arena
  std::size_t batches = 0, weight_slots = 0, gradient_slots = 0;
  std::size_t scratch = 0, library = 0;      ///< of kernels, of driver and libraries: measured on one kind of device, not computed
  std::size_t snapshot_slots = 0, kept = 0;  ///< in host memory: waiting to be written; in the launcher's, to recover from
  std::size_t copied = 0;                    ///< the same of a rank of the next host, where there are several (every host but the last)
  std::size_t host_others = 0;
  bool host_state = false;                             ///< training.enable_cpu_offload
  [[nodiscard]] std::size_t planned() const noexcept;  ///< on the device, by the run's own plan
  [[nodiscard]] std::size_t device() const noexcept { return planned() + scratch + library; }
  [[nodiscard]] std::size_t host() const noexcept;
};

/// Times of one rank's step by the roofline, in seconds.
struct RooflineStep {
  WorkTime compute;          ///< all forwards and backwards
  double communication = 0;  ///< all collectives but the verdict
  double end = 0;            ///< what hides under no backward: verdict and optimizer; the gathers of the next step run beside the optimizer
  double step = 0;           ///< the longer of compute and communication, and the end
  double tokens_per_second = 0, mfu = 0, mfu_causal = 0;  ///< of one rank; parts of the bf16 peak; nan without one, as on a CPU
};

/// What a run would be. A value.
struct Estimate {
  std::uint32_t ranks = 1;
  ClusterModel cluster;
  TrainingJob job;  ///< by the very planner that a run uses
  TrainingEstimate training;
  UnbuiltDegrees unbuilt;
  std::vector<std::string> notes, not_built;
  double flops_per_token = 0, flops_per_token_causal = 0;
  std::int64_t parameters = 0;
  RankMemory memory;
  std::vector<CollectiveTotal> collectives;
  RooflineStep roofline;
  [[nodiscard]] bool fits() const noexcept;  ///< into the device's memory, as far as it is known
};

/// Nothing is started, read or allocated. The error is what makes any plan impossible.
[[nodiscard]] Result<Estimate> estimate_run(const JobConfig& config, std::uint32_t ranks, const ClusterModel& cluster);
[[nodiscard]] std::string estimate_text(const Estimate& estimate);
[[nodiscard]] std::string estimate_json(const Estimate& estimate);

/// Bytes of one rank's state as snapshots hold it: masters and moments, with averages where there are any.
[[nodiscard]] std::size_t state_bytes(const TrainingJob& job, const TrainingEstimate& estimate);

}  // namespace troupe
