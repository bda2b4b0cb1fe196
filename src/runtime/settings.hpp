#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "src/base/schema.hpp"

namespace troupe {

/// [slots]: the number of slots of each edge, which is the depth of every overlap.
struct SlotSettings {
  std::int64_t batches = 2, weights = 2, gradients = 2, snapshots = 1, activations = 0;
};

inline void describe(Schema& schema, SlotSettings& s) {
  schema.section("slots", "Slots of each edge between actors: a free slot is the permission to produce, so their number is the depth of the overlap.");
  schema.key("batches", &s.batches, KeyClass::epoch, "batches read ahead").at_least(1).at_most(4096);
  schema.key("weights", &s.weights, KeyClass::epoch, "layers whose gathered weights may exist at once").at_least(1).at_most(4096);
  schema.key("gradients", &s.gradients, KeyClass::epoch, "layers whose unreduced gradients may exist at once").at_least(1).at_most(4096);
  schema.key("snapshots", &s.snapshots, KeyClass::epoch, "copies of the state that may wait to be written").at_least(1).at_most(4096);
  schema.key("activations", &s.activations, KeyClass::epoch, "no effect yet: the activations of one micro-batch exist at once").at_least(0).at_most(4096);
}

/// [runtime]
struct RuntimeSettings {
  std::int64_t threads_per_rank = 1;
  std::int64_t run_ahead = 0;
  std::int64_t min_operation_us = 1000;
};

inline void describe(Schema& schema, RuntimeSettings& s) {
  schema.section("runtime", "The actor runtime.");
  schema.key("threads_per_rank", &s.threads_per_rank, KeyClass::epoch, "threads inside one CPU kernel; results depend on it").at_least(1).at_most(1024);
  schema.key("run_ahead", &s.run_ahead, KeyClass::epoch, "no effect yet: operations are announced on completion").at_least(0).at_most(64);
  schema.key("min_operation_us", &s.min_operation_us, KeyClass::epoch, "no effect yet: operations are whole layers").at_least(0).at_most(10000000);
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
  schema.ignored("trace_buf_size", "see [trace] events");
}

/// [debug]
struct DebugSettings {
  std::int64_t seed = 0;
  std::optional<bool> deterministic;  ///< unset: true on a CPU, false on a GPU
};

inline void describe(Schema& schema, DebugSettings& s) {
  schema.section("debug", "Seeds and determinism.");
  schema.key("seed", &s.seed, KeyClass::frozen, "of initialisation and of the order of the data").at_least(0).alias("training.seed");
  schema.key("deterministic", &s.deterministic, KeyClass::epoch, "repeat bit for bit; no effect on a CPU, which always does").alias("training.deterministic");
}

/// [parallelism]: the mesh. A degree of -1 is what is left of the world size.
struct ParallelismSettings {
  std::int64_t data_parallel_replicate_degree = 1, data_parallel_shard_degree = -1;
  std::int64_t context_parallel_degree = 1, tensor_parallel_degree = 1, pipeline_parallel_degree = 1, expert_parallel_degree = 1;
  std::string fsdp_reshard_after_forward = "default";
};

inline void describe(Schema& schema, ParallelismSettings& s) {
  schema.section("parallelism", "Degrees of the mesh; their product is the number of ranks.");
  schema.key("data_parallel_replicate_degree", &s.data_parallel_replicate_degree, KeyClass::epoch, "replicas of the sharded model; 1 in this version")
      .at_least(-1)
      .not_zero();
  schema
      .key("data_parallel_shard_degree", &s.data_parallel_shard_degree, KeyClass::epoch,
           "ranks that share weights, gradients and optimizer state; -1: all that is left")
      .at_least(-1)
      .not_zero();
  schema.key("context_parallel_degree", &s.context_parallel_degree, KeyClass::epoch, "1 in this version").at_least(1);
  schema.key("tensor_parallel_degree", &s.tensor_parallel_degree, KeyClass::epoch, "1 in this version").at_least(1);
  schema.key("pipeline_parallel_degree", &s.pipeline_parallel_degree, KeyClass::epoch, "1 in this version").at_least(1);
  schema.key("expert_parallel_degree", &s.expert_parallel_degree, KeyClass::epoch, "1 in this version").at_least(1);
  schema.key("fsdp_reshard_after_forward", &s.fsdp_reshard_after_forward, KeyClass::epoch, "default and always: gather again for the backward pass")
      .one_of({"default", "always"}, "to keep gathered weights is not available in this version");
  schema.ignored("enable_compiled_autograd", "there is no autograd at run time");
  schema.ignored("enable_async_tensor_parallel", "tensor_parallel_degree is 1 in this version");
  schema.ignored("disable_loss_parallel", "tensor_parallel_degree is 1 in this version");
}

}  // namespace troupe
