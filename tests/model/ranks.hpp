#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/collectives/communicator.hpp"
#include "src/device/device.hpp"
#include "src/model/family_llama3.hpp"
#include "src/model/plain_step.hpp"
#include "src/model/training_model.hpp"

namespace troupe::test {

/// One rank of a training world that lives in this process, on a thread of its own.
struct RankContext {
  std::uint32_t rank;
  Device& device;
  Communicator& communicator;  ///< dp_shard
  Communicator& world;
  Communicator* dp_replicate;  ///< null: one replica
  TrainingModel& model;
  HaltWord& halt;
};

/// A row of the global batch: fills tokens and labels of `row` (of the whole step's rows, whatever rank and micro-batch it falls to).
using FillRow = std::function<void(Step, std::uint64_t row, std::span<std::int32_t> tokens, std::span<std::int32_t> labels)>;

/// Made-up text that can be learnt: each token follows from the one before with some noise. Every label is valid.
[[nodiscard]] FillRow markov_rows(std::int32_t vocabulary, std::uint64_t seed = 7);

/// Deals the rows of the global batch: row = (micro · ranks + rank) · rows + i, over all ranks that load data. Rows from `rows` on
/// are padding: token 0 and no valid label.
[[nodiscard]] PlainStep::Load deal(const TrainingOptions& options, FillRow fill, std::uint64_t rows = ~std::uint64_t{0});

[[nodiscard]] ModelDescription llama3(std::string_view flavour);

/// Makes `options.data_ranks()` ranks (rank and replica are set here), initialises them with seed 1 and runs `body` on each; rethrows the first failure.
void on_ranks(const ModelDescription& model, TrainingOptions options, const std::function<void(RankContext&)>& body);

/// `steps` plain steps of the whole world; the numbers of rank 0. `rows`: as `deal`.
[[nodiscard]] std::vector<StepNumbers> train(const ModelDescription& model, const TrainingOptions& options, const FillRow& fill, std::uint64_t steps,
                                             double learning_rate, std::uint64_t rows = ~std::uint64_t{0});

/// Bytes of all state tensors of a rank, in order: to be compared bit for bit.
[[nodiscard]] std::vector<std::byte> state_bytes(TrainingModel& model);

}  // namespace troupe::test
