#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "src/base/ids.hpp"
#include "src/collectives/communicator.hpp"
#include "src/device/lane.hpp"
#include "src/device/verdict.hpp"

/// What the actors' lanes run: the arithmetic of one rank for one epoch, without a word about actors. src/model implements it for
/// real models; tests and the simulator put programs of their own in its place. Every member function but the queries is called
/// by a lane's thread, in plan order; memory is given as the bytes of slots, whose sizes the program itself told.
namespace troupe {

/// A batch slot: i32 tokens [rows, seq_len], then i32 labels [rows, seq_len]; a label < 0 is ignored. With documents, then i32 starts [rows, seq_len]:
/// where in its row a token's document begins (Kernels::attention).
struct BatchLayout {
  std::uint32_t rows = 1, seq_len = 1;
  bool documents = false;
  [[nodiscard]] std::size_t tokens() const noexcept { return std::size_t{rows} * seq_len; }
  [[nodiscard]] std::size_t bytes() const noexcept { return tokens() * (documents ? 3 : 2) * sizeof(std::int32_t); }
};

/// What a loader knows of a batch that it filled.
struct BatchFacts {
  std::uint64_t valid_tokens = 0;
  std::uint64_t digest = 0;  ///< sum of the XXH3-64 of each row's token ids (not the labels, no padding), seeded with the row's number
};

/// DataLoader's disk lane. A pure function of (seed, step, micro): a restarted loader repeats itself.
class LoaderProgram {
 public:
  virtual ~LoaderProgram() = default;
  virtual BatchFacts load(Stream&, Step step, Micro micro, std::span<std::byte> batch) = 0;
};

/// Compute's lane. Micro-batches from the step's number on are of the validation set: forward alone, nothing kept. Units: 0 embedding, 1…L blocks, L+1 norm,
/// head and loss. Saved activations live in the program's own arena.
class ComputeProgram {
 public:
  virtual ~ComputeProgram() = default;
  virtual void forward(Stream&, Step step, Micro micro, Unit unit, std::span<const std::byte> batch, std::span<const std::byte> weights) = 0;
  /// Overwrites `gradients`: fp32, unsharded, of this micro-batch alone.
  virtual void backward(Stream&, Step step, Micro micro, Unit unit, std::span<const std::byte> batch, std::span<const std::byte> weights,
                        std::span<std::byte> gradients) = 0;
};

/// Σ −log p over valid targets, and how many they are.
struct LossSum {
  double loss = 0, tokens = 0;
};

/// What the verdict said, as the host reads it after the step.
struct StepNumbers {
  Verdict verdict;
  double learning_rate = 0;
  double own_mean_loss = 0;                             ///< over this rank's valid targets
  std::uint64_t bytes_gathered = 0, bytes_reduced = 0;  ///< received by this rank in the step
  double evaluation_loss = 0, evaluation_tokens = 0;    ///< over the validation set, by the newest `evaluate`: mean loss, and its valid tokens
  std::vector<LossSum> sources = {};                    ///< of this rank's rows, by the source of a blend that they are of; empty: one source
};

/// Sharding's lanes: shards of weights, gradients and optimizer state.
class ShardProgram {
 public:
  virtual ~ShardProgram() = default;
  [[nodiscard]] virtual std::size_t weights_bytes(Unit) const = 0;  ///< of a slot that holds this unit, all ranks' parts
  [[nodiscard]] virtual std::size_t gradients_bytes(Unit) const = 0;
  // comm lane
  /// fp8 only: amax of each fp8 weight that the unit owns over all shards (one all-reduce) and the scales from them.
  virtual void scales(Stream&, Unit unit, Communicator& dp_shard) = 0;
  /// Casts the own shard into its place in `weights`, then gathers in place.
  virtual void gather(Stream&, Unit unit, std::span<std::byte> weights, Communicator& dp_shard) = 0;
  /// Adds to the unsharded sums of the step's micro-batches, which the last one's reduce then takes along; nothing leaves the rank.
  virtual void accumulate(Stream&, Micro micro, Unit unit, std::span<std::byte> gradients) = 0;
  /// Reduce-scatters into the gradient shard; micro-batches after the first add to it.
  virtual void reduce(Stream&, Micro micro, Unit unit, std::span<std::byte> gradients, Communicator& dp_shard) = 0;
  /// Sums the gradient shards of the parameters that this unit owns over the replicas of the model; once a step, behind all their reduces.
  virtual void all_reduce(Stream&, Unit unit, Communicator& dp_replicate) = 0;
  /// Sums and decides; the Verdict stays on the device.
  virtual void verdict(Stream&, EpochId epoch, Step step, Communicator& world) = 0;
  /// Where units step in the backward pass: sums and decides for this unit (above 0), whose gradients are whole; its `optimize` acts on it. One that is not
  /// finite keeps all units below it from being written too. `verdict` then decides for unit 0 and tells of the whole step.
  virtual void unit_verdict(Stream&, EpochId, Step, Unit, Communicator&) { throw std::logic_error("this program judges whole steps, not units"); }
  /// Sums the losses of the validation set, whose forwards are done, over all ranks; and forgets them, and the bytes that they gathered.
  virtual void evaluate(Stream&, Communicator&) {}
  // optimizer lane
  virtual void optimize(Stream&, Step step, Unit unit, double learning_rate) = 0;
  /// Called on the completion of the step's last operation.
  [[nodiscard]] virtual StepNumbers numbers() const = 0;
};

/// What was written for one rank.
struct SavedShard {
  std::string file;                   ///< relative to the checkpoint's folder
  std::uint64_t bytes = 0, hash = 0;  ///< XXH3-64 of its header, in which stand the hashes of its data
};

/// Checkpoint's lanes.
class SnapshotProgram {
 public:
  virtual ~SnapshotProgram() = default;
  [[nodiscard]] virtual std::size_t snapshot_bytes() const = 0;
  /// copy lane: state → host memory
  virtual void copy(Stream&, Step step, std::span<std::byte> snapshot) = 0;
  /// storage lane: host memory → a file in `folder`, synced; throws with what the storage said
  virtual SavedShard save(Step step, std::span<const std::byte> snapshot, const std::filesystem::path& folder) = 0;
};

/// A copy of a rank's state in memory that outlives its process.
struct KeptSnapshot {
  std::uint64_t bytes = 0, hash = 0;  ///< XXH3-64 of it
};

/// Checkpoint's copy lane, where a run recovers from memory.
class KeepProgram {
 public:
  virtual ~KeepProgram() = default;
  /// state → snapshot `slot` (0 or 1), marked whole and of this epoch and step when all of it is there; throws with what is wrong.
  virtual KeptSnapshot keep(Stream&, EpochId epoch, Step step, std::uint32_t slot) = 0;
};

}  // namespace troupe
