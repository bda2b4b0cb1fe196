#pragma once
#include "src/model/programs.hpp"

namespace troupe {

/// The step's micro-batches by one program, those of the validation set behind them by another. Both outlive it.
class StepAndEvaluation final : public ComputeProgram {
 public:
  StepAndEvaluation(ComputeProgram& step, ComputeProgram& evaluation, std::uint32_t micro_batches)
      : step_(step), evaluation_(evaluation), micro_batches_(micro_batches) {}
  void forward(Stream& stream, Step step, Micro micro, Unit unit, std::span<const std::byte> batch, std::span<const std::byte> weights) override {
    (micro.value() < micro_batches_ ? step_ : evaluation_).forward(stream, step, micro, unit, batch, weights);
  }
  void backward(Stream& stream, Step step, Micro micro, Unit unit, std::span<const std::byte> batch, std::span<const std::byte> weights,
                std::span<std::byte> gradients) override {
    step_.backward(stream, step, micro, unit, batch, weights, gradients);
  }

 private:
  ComputeProgram& step_;
  ComputeProgram& evaluation_;
  std::uint32_t micro_batches_;
};

}  // namespace troupe
