#pragma once
#include <cstring>
#include <string>
#include <vector>

#include "src/checkpoint/checkpoint_store.hpp"
#include "src/checkpoint/restore.hpp"
#include "src/checkpoint/snapshot.hpp"

namespace troupe::testing {

class IdleStream final : public Stream {};

/// The state of one rank of a world: parameters of some first dimensions with two moments and a step count each, split by rows as
/// ceil(rows / ranks), so that late ranks may hold none.
class TrainingState {
 public:
  explicit TrainingState(std::uint32_t rank = 0, std::uint32_t world = 1, const std::vector<std::int64_t>& first_dimensions = {6, 1, 3, 7}) {
    for (const auto rows : first_dimensions) {
      const std::string name = "w" + std::to_string(rows);
      for (const auto& full : {name, "optimizer.exp_avg." + name, "optimizer.exp_avg_sq." + name}) {
        const std::int64_t each = (rows + world - 1) / world, first = std::min(rows, each * rank), held = std::min(rows, first + each) - first;
        add(full, {rows, 5}, first, held, DType::f32, full == name, false);
      }
      add("optimizer.step." + name, {1}, 0, 1, DType::i64, false, true);
    }
  }
  /// Values that differ in every element, tensor and step.
  void fill(std::uint64_t step) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      auto& tensor = tensors[i];
      const auto row = tensor.global_shape.rank > 1 ? tensor.global_shape[1] : 1;
      for (std::int64_t e = 0; e < tensor.rows * row; ++e) {
        const auto value = static_cast<std::int64_t>(step) * 100003 + static_cast<std::int64_t>(i) * 1009 + (tensor.first_row * row + e) * 3;
        if (tensor.view.dtype == DType::i64)
          tensor.view.as<std::int64_t>()[e] = value;
        else
          tensor.view.as<float>()[e] = static_cast<float>(value) * 0.37F;
      }
    }
  }
  [[nodiscard]] bool equals_step(std::uint64_t step) const {
    TrainingState expected(*this);
    expected.fill(step);
    return expected.memory_ == memory_;
  }
  TrainingState(const TrainingState& other) : tensors(other.tensors), memory_(other.memory_) {
    for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].view.data = memory_[i].data();
  }
  TrainingState& operator=(const TrainingState&) = delete;
  StateTensors tensors;

 private:
  void add(const std::string& name, const Shape& shape, std::int64_t first, std::int64_t rows, DType dtype, bool model, bool replicated) {
    Shape part = shape;
    part.size[0] = rows;
    memory_.emplace_back(static_cast<std::size_t>(part.elements()) * size_of(dtype));
    tensors.push_back({name, shape, first, rows, TensorView::contiguous(memory_.back().data(), dtype, part), model, replicated});
  }
  std::vector<std::vector<std::byte>> memory_;
};

/// Every rank of a world, and what its Checkpoint actors and Coordinator do.
class World {
 public:
  World(std::uint32_t ranks, Storage& storage, const std::filesystem::path& folder, const std::vector<std::int64_t>& dimensions = {6, 1, 3, 7})
      : storage_(storage), store(folder, storage) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) states.emplace_back(rank, ranks, dimensions);
  }
  void fill(std::uint64_t step) {
    for (auto& state : states) state.fill(step);
  }
  [[nodiscard]] bool equals_step(std::uint64_t step) const {
    for (const auto& state : states) {
      if (!state.equals_step(step)) return false;
    }
    return true;
  }
  /// Fills and saves; throws as a SnapshotProgram, or std::runtime_error with why it was not sealed.
  void save(std::uint64_t step, bool model_only = false, std::uint64_t epoch = 1) {
    fill(step);
    save_as_is(step, model_only, epoch);
  }
  void save_as_is(std::uint64_t step, bool model_only = false, std::uint64_t epoch = 1) {
    const auto world = static_cast<std::uint32_t>(states.size());
    std::vector<SavedShard> shards;
    IdleStream stream;
    for (std::uint32_t rank = 0; rank < world; ++rank) {
      const auto program =
          make_snapshot_program(states[rank].tensors, {.rank = rank, .world = world, .model_only = [=](Step) { return model_only; }}, storage_);
      std::vector<std::byte> slot(program->snapshot_bytes());
      program->copy(stream, Step{step}, slot);
      shards.push_back(program->save(Step{step}, slot, store.writing_folder(Step{step}, EpochId{epoch})));
    }
    const RunPosition position{Step{step}, EpochId{epoch}, world, 0xfedcba9876543210U, step * 8, step * 1000, model_only};
    if (auto sealed = store.seal(position, shards); !sealed) throw std::runtime_error(sealed.error().message);
  }
  Result<void> load(const FoundCheckpoint& found, const RestoreOptions& options = {}) {
    for (auto& state : states) {
      if (auto restored = restore_state(found.manifest, found.folder, storage_, state.tensors, options); !restored) return restored;
    }
    return {};
  }

 private:
  Storage& storage_;

 public:
  CheckpointStore store;
  std::vector<TrainingState> states;
};

}  // namespace troupe::testing
