#pragma once
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "src/model/training_model.hpp"

namespace troupe {

/// A step as a plain loop over the same programs that the actors drive, in the order of DESIGN §4 with one slot of each edge: the
/// reference of tests and benchmarks. One thread a rank.
class PlainStep {
 public:
  /// Fills a batch for (step, micro) of this rank: host memory, which is then uploaded.
  using Load = std::function<void(Step, Micro, std::span<std::byte> batch)>;
  struct Communicators {
    Communicator &dp_shard, &world;
    Communicator* dp_replicate = nullptr;  ///< null: one replica
  };
  /// `model` and the communicators outlive it, as does `device`, on whose set-up's stream all runs.
  PlainStep(TrainingModel& model, Device& device, Communicators communicators, Load load);
  /// dp_shard and world alike.
  PlainStep(TrainingModel& model, Device& device, Communicator& communicator, Load load)
      : PlainStep(model, device, Communicators{communicator, communicator, nullptr}, std::move(load)) {}
  ~PlainStep();

  /// Forward, backward, verdict, optimizer.
  StepNumbers run(EpochId epoch, Step step, double learning_rate);
  /// Forward and backward of all micro-batches: gradient shards and sums are left behind, nothing is decided.
  void gradients(Step step);
  /// As a plan that evaluates does behind the step: forwards of `batches` micro-batches of the validation set, and the sum of their losses.
  StepNumbers evaluate(Step step, std::uint32_t batches);

 private:
  /// `reduced` is called when a unit's gradient shards are whole, while the backward pass goes on below.
  void pass(Step step, const std::function<void(Unit)>& reduced);
  void load(Step step, Micro micro);
  void scales(Stream& stream);
  void forward(Stream& stream, Step step, Micro micro);
  void reduce(Stream& stream, Micro micro, Unit unit);

  TrainingModel& model_;
  Device& device_;
  Communicators communicators_;
  Load load_;
  std::unique_ptr<Buffer> staging_, batch_, weights_, gradients_;
};

}  // namespace troupe
