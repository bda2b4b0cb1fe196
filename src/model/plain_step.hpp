#pragma once
#include <functional>
#include <memory>
#include <span>

#include "src/model/training_model.hpp"

namespace troupe {

/// A step as a plain loop over the same programs that the actors drive, in the order of DESIGN §4 with one slot of each edge: the
/// reference of tests and benchmarks. One thread a rank.
class PlainStep {
 public:
  /// Fills a batch for (step, micro) of this rank: host memory, which is then uploaded.
  using Load = std::function<void(Step, Micro, std::span<std::byte> batch)>;
  /// `model` and `communicator` (dp_shard and world alike) outlive it, as does `device`, on whose set-up's stream all runs.
  PlainStep(TrainingModel& model, Device& device, Communicator& communicator, Load load);
  ~PlainStep();

  /// Forward, backward, verdict, optimizer.
  StepNumbers run(EpochId epoch, Step step, double learning_rate);
  /// Forward and backward of all micro-batches: gradient shards and sums are left behind, nothing is decided.
  void gradients(Step step);

 private:
  TrainingModel& model_;
  Device& device_;
  Communicator& communicator_;
  Load load_;
  std::unique_ptr<Buffer> staging_, batch_, weights_, gradients_;
};

}  // namespace troupe
