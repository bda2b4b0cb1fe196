#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/base/schema.hpp"

namespace troupe {

/// [slots]: the number of slots of each edge, which is the depth of every overlap.
struct SlotSettings {
  std::int64_t batches = 2, gradients = 2, snapshots = 1;
  std::optional<std::int64_t> weights;  ///< unset: 2, or one for each unit where weights stay gathered
};

inline void describe(Schema& schema, SlotSettings& s) {
  schema.section("slots", "Slots of each edge between actors: a free slot is the permission to produce, so their number is the depth of the overlap.");
  schema.key("batches", &s.batches, KeyClass::epoch, "batches read ahead").at_least(1).at_most(4096);
  schema
      .key("weights", &s.weights, KeyClass::epoch,
           "layers whose gathered weights may exist at once; unset: 2, or with parallelism.fsdp_reshard_after_forward = \"never\" one for each unit")
      .at_least(1)
      .at_most(4096);
  schema.key("gradients", &s.gradients, KeyClass::epoch, "layers whose unreduced gradients may exist at once").at_least(1).at_most(4096);
  schema.key("snapshots", &s.snapshots, KeyClass::epoch, "copies of the state that may wait to be written").at_least(1).at_most(4096);
  schema
      .not_built("activations", 0, "micro-batches whose activations may exist at once; 0: as the plan needs, which is one",
                 "stages of a pipeline, which alone would have more than one")
      .at_least(0)
      .at_most(4096);
}

/// [runtime]
struct RuntimeSettings {
  std::string device = "cpu";
  std::int64_t threads_per_rank = 1;
  std::int64_t run_ahead = 0;
};

inline void describe(Schema& schema, RuntimeSettings& s) {
  schema.section("runtime", "The actor runtime.");
  schema
      .key("device", &s.device, KeyClass::epoch,
           "what each rank computes on: cpu, or cuda, one GPU a rank by its number on the host (needs the CUDA plug-in, docs/gpu.md); --device is short for it")
      .one_of({"cpu", "cuda"});
  schema.key("threads_per_rank", &s.threads_per_rank, KeyClass::epoch, "threads inside one CPU kernel; results depend on it").at_least(1).at_most(1024);
  schema
      .key("run_ahead", &s.run_ahead, KeyClass::epoch,
           "on a GPU: how many operations of the compute stream may be issued before their inputs are done, which are then waited for on the device; 0: each "
           "operation is announced when it is done. No effect on a CPU")
      .at_least(0)
      .at_most(64);
  schema.ignored("min_operation_us", 1000, "operations are whole layers, which nothing would merge or split").at_least(0).at_most(10000000);
}

/// [comm]
struct CommSettings {
  std::int64_t init_timeout_seconds = 300, train_timeout_seconds = 100;
  std::string collectives = "auto";
  std::string interface;  ///< empty: loopback
};

inline void describe(Schema& schema, CommSettings& s) {
  schema.section("comm", "What joins the ranks, and limits on waiting for each other.");
  schema.key("init_timeout_seconds", &s.init_timeout_seconds, KeyClass::epoch, "until all ranks have joined and are ready for the first step")
      .at_least(1)
      .at_most(1000000);
  schema.key("train_timeout_seconds", &s.train_timeout_seconds, KeyClass::live, "the oldest pending operation of a later step").at_least(1).at_most(1000000);
  schema
      .key("collectives", &s.collectives, KeyClass::epoch,
           "what carries collectives: shared_memory, transport, or auto: shared memory where all ranks are on one host")
      .one_of({"auto", "shared_memory", "transport"});
  schema
      .key("interface", &s.interface, KeyClass::epoch,
           "network interface of letters and of the launcher's port, such as eth0; empty: loopback, for one host alone")
      .apart();
  schema.ignored("trace_buf_size", 20000, "see [trace] events");
  schema.ignored("save_traces_folder", "comm_traces", "collectives are part of the timeline, see [trace]");
  schema.ignored("save_traces_file_prefix", "rank_", "collectives are part of the timeline, see [trace]");
  schema
      .not_built("mode", "default", "default, fake_backend or local_tensor: one process acts for all ranks", "`troupe train --dry-run` checks without running")
      .one_of({"default", "fake_backend", "local_tensor"});
}

/// Collectives of a live run give up by themselves after no less: the Coordinator, whose limit may change meanwhile, ends them before.
inline constexpr std::int64_t longest_live_timeout_seconds = 3600;

/// [elastic]: what becomes of the run when a process dies.
struct ElasticSettings {
  std::string policy = "stop";
  std::int64_t memory_interval = 10, attempts = 3, min_ranks = 1;
  [[nodiscard]] bool respawn() const { return policy == "respawn"; }
  [[nodiscard]] bool shrink() const { return policy == "shrink"; }
  [[nodiscard]] bool recovers() const { return respawn() || shrink(); }
};

inline void describe(Schema& schema, ElasticSettings& s) {
  schema.section("elastic", "What becomes of the run when a process dies, hangs or fails.");
  schema
      .key("policy", &s.policy, KeyClass::epoch,
           "stop: the run ends with an error that names the rank; respawn: the process is started again and all go on from the newest snapshot, bit for bit; "
           "shrink: those that are left go on with the same batches, until `troupe join` adds ranks")
      .one_of({"stop", "respawn", "shrink"});
  schema
      .key(
          "memory_interval", &s.memory_interval, KeyClass::epoch,
          "respawn, shrink and rollbacks (training.guard): steps between snapshots of the training state in the memory of the launcher, which holds two, or as "
          "many as a rollback needs; 0: none, only checkpoints on disk")
      .at_least(0)
      .at_most(1000000);
  schema
      .key("attempts", &s.attempts, KeyClass::epoch,
           "respawn and shrink: how often one step may fail, or one process end, without a new step before the run ends")
      .at_least(1)
      .at_most(1000000);
  schema.key("min_ranks", &s.min_ranks, KeyClass::epoch, "shrink: the run ends where fewer ranks than this are left").at_least(1).at_most(1000000);
}

/// [live]: changes of the running configuration.
struct LiveSettings {
  std::vector<std::string> changes;
  bool watch = true;
};

inline void describe(Schema& schema, LiveSettings& s) {
  schema.section("live", "Changes of the configuration while the run goes on; `troupe set` makes them by hand.");
  schema
      .key("changes", &s.changes, KeyClass::frozen,
           "what changes with which step, \"step=7 optimizer.lr=1e-4\", or a table each: [[changes]] step = 7, set = {\"optimizer.lr\" = 1e-4}; keys as for "
           "`troupe set`")
      .or_single()
      .alias("changes")
      .apart();
  schema
      .key("watch", &s.watch, KeyClass::frozen,
           "the configuration's file is watched, and what is edited in it changes the running job, all or nothing; command-line values stay above it")
      .apart();
}

/// [debug]
struct DebugSettings {
  std::int64_t seed = 0;
  std::optional<bool> deterministic;  ///< unset: true on a CPU, false on a GPU
};

inline void describe(Schema& schema, DebugSettings& s) {
  schema.section("debug", "Seeds and determinism.");
  schema.key("seed", &s.seed, KeyClass::frozen, "of initialisation and of the order of the data").at_least(0).alias("training.seed");
  schema
      .key("deterministic", &s.deterministic, KeyClass::epoch,
           "repeat bit for bit, with slower kernels on a GPU; unset: false there. No effect on a CPU, which always repeats")
      .alias("training.deterministic");
  schema.ignored("deterministic_warn_only", false, "no kernel is without a deterministic form");
  schema.not_built("moe_force_load_balance", false, "deal tokens to experts in turn", "mixture of experts");
}

/// [parallelism]: the mesh. A degree of -1 is what is left of the world size.
struct ParallelismSettings {
  std::int64_t data_parallel_replicate_degree = 1, data_parallel_shard_degree = -1;
  std::int64_t context_parallel_degree = 1, tensor_parallel_degree = 1, pipeline_parallel_degree = 1, expert_parallel_degree = 1;
  std::string fsdp_reshard_after_forward = "default";
  std::string reduce_gradients = "every";
};

inline void describe(Schema& schema, ParallelismSettings& s) {
  schema.section("parallelism", "Degrees of the mesh; their product is the number of ranks.");
  schema
      .key("data_parallel_replicate_degree", &s.data_parallel_replicate_degree, KeyClass::epoch,
           "replicas of the sharded model (HSDP; with a shard degree of 1: DDP); -1: all that is left")
      .at_least(-1)
      .at_most(1048576)
      .not_zero();
  schema
      .key("data_parallel_shard_degree", &s.data_parallel_shard_degree, KeyClass::epoch,
           "ranks that share weights, gradients and optimizer state; -1: all that is left")
      .at_least(-1)
      .at_most(1048576)
      .not_zero();
  const auto degree = [&](const char* name, std::int64_t* member, const char* doc, const char* missing) {
    schema.key(name, member, KeyClass::epoch, doc).at_least(1).at_most(1048576).built_only({"1"}, missing);
  };
  degree("context_parallel_degree", &s.context_parallel_degree, "ranks that share a sequence", "context parallelism");
  degree("tensor_parallel_degree", &s.tensor_parallel_degree, "ranks that share a layer's products", "tensor parallelism");
  degree("pipeline_parallel_degree", &s.pipeline_parallel_degree, "stages of the pipeline", "pipeline parallelism");
  degree("expert_parallel_degree", &s.expert_parallel_degree, "ranks that share a layer's experts", "mixture of experts");
  schema
      .key("fsdp_reshard_after_forward", &s.fsdp_reshard_after_forward, KeyClass::epoch,
           "default: weights are gathered again for the backward pass, but for the last unit's; always: for that, too; never: gathered once a step and kept, "
           "which takes a slot of weights for each unit")
      .one_of({"default", "always", "never"});
  schema
      .key("reduce_gradients", &s.reduce_gradients, KeyClass::epoch,
           "every: each micro-batch's gradients are reduced to shards, as torchtitan does; last: micro-batches are summed unsharded and reduced once a step, "
           "which moves fewer bytes and takes the memory of all gradients")
      .one_of({"every", "last"});
  schema.ignored("enable_compiled_autograd", false, "there is no autograd at run time");
}

/// [parallelism], keys of the kinds of parallelism to come.
inline void describe_other_parallelism(Schema& schema) {
  using Names = std::vector<std::string>;
  schema.section("parallelism");
  const std::string tensor = "tensor parallelism", pipeline = "pipeline parallelism", context = "context parallelism", experts = "mixture of experts";
  schema.not_built("enable_async_tensor_parallel", false, "collectives of tensor parallelism under its products", tensor)
      .part_of("parallelism.tensor_parallel_degree");
  schema.not_built("disable_loss_parallel", false, "gather the logits before the loss", tensor).part_of("parallelism.tensor_parallel_degree");
  schema.not_built("pipeline_parallel_schedule", "1F1B", "order of a stage's micro-batches", pipeline).part_of("parallelism.pipeline_parallel_degree");
  schema.not_built("pipeline_parallel_schedule_csv", "", "file with that order", pipeline).part_of("parallelism.pipeline_parallel_degree");
  schema.not_built("pipeline_parallel_microbatch_size", 1, "rows of a stage's micro-batch", pipeline)
      .at_least(1)
      .part_of("parallelism.pipeline_parallel_degree");
  schema.not_built("module_fqns_per_model_part", Names{}, "where the stages begin", pipeline)
      .alias("parallelism.pipeline_parallel_split_points")
      .part_of("parallelism.pipeline_parallel_degree");
  schema.not_built("pipeline_parallel_layers_per_stage", std::optional<std::int64_t>{}, "layers of one stage", pipeline)
      .at_least(1)
      .part_of("parallelism.pipeline_parallel_degree");
  schema.not_built("pipeline_parallel_first_stage_less_layers", 1, "layers that the embedding counts for", pipeline)
      .at_least(0)
      .part_of("parallelism.pipeline_parallel_degree");
  schema.not_built("pipeline_parallel_last_stage_less_layers", 1, "layers that the head counts for", pipeline)
      .at_least(0)
      .part_of("parallelism.pipeline_parallel_degree");
  schema.not_built("pipeline_parallel_expert_parallel_overlap", true, "experts' collectives of one micro-batch under another's products", pipeline)
      .part_of("parallelism.pipeline_parallel_degree");
  schema.not_built("context_parallel_load_balancer", std::optional<std::string>{"headtail"}, "how a sequence is cut", context)
      .one_of({"headtail", "ptrr"})
      .part_of("parallelism.context_parallel_degree");
  schema.not_built("context_parallel_rotate_method", "allgather", "how keys and values go round", context)
      .one_of({"allgather", "alltoall"})
      .part_of("parallelism.context_parallel_degree");
  schema.not_built("expert_tensor_parallel_degree", 1, "ranks that share one expert's products", experts)
      .at_least(1)
      .part_of("parallelism.expert_parallel_degree");
  schema.not_built("expert_parallel_comm_backend", "standard", "what carries tokens to experts", experts)
      .one_of({"standard", "deepep"})
      .part_of("parallelism.expert_parallel_degree");
}

}  // namespace troupe
