#include "tools/launcher/kernel_scratch.hpp"

#include <algorithm>

#include "src/device/line_scratch.hpp"

namespace troupe {
namespace {

constexpr std::size_t products_workspace = std::size_t{64} << 20U;                  // src/device/cuda/linear_kernels.cpp
constexpr std::size_t attention_bytes = sizeof(float) + 2 * sizeof(std::uint16_t);  // for an element of the queries

std::size_t attention_of(const TrainingEstimate& estimate) {
  std::size_t most = 0;
  for (const auto& unit : estimate.tapes.backward)
    for (const Instruction& i : unit)
      if (i.code == InstructionCode::attention_backward)
        most = std::max(most, static_cast<std::size_t>(estimate.tapes.sizes.tokens() * i.heads * i.head_dim) * attention_bytes);
  return most;
}

/// Of the largest product by rows and columns, whose operands are widened for the time that it takes.
std::size_t lines_of(const TrainingEstimate& estimate) {
  std::size_t most = 0;
  const auto look_at = [&](const TapePlan& tapes, const UnitLayout& unit, const Instruction& i) {
    const auto values = [&](std::size_t operand) {
      const TapeBuffer& buffer = tapes.buffers[static_cast<std::size_t>(i.operands[operand])];
      return static_cast<std::size_t>(buffer.rows * buffer.cols);
    };
    const auto weight = [&] {
      const ParameterSlot& slot = unit.slots[static_cast<std::size_t>(i.parameter)];
      return static_cast<std::size_t>(estimate.layout.parameters[slot.parameter].description.elements());
    };
    if (i.code == InstructionCode::linear_fp8 || i.code == InstructionCode::linear_fp8_backward_input)
      most = std::max(most, line_product_scratch(values(0), weight()));
    if (i.code == InstructionCode::linear_fp8_backward_weight) most = std::max(most, line_product_scratch(values(0), values(2)));
  };
  for (const TapePlan* tapes : {&estimate.tapes, &estimate.evaluation})
    for (const auto* direction : {&tapes->forward, &tapes->backward})
      for (std::size_t u = 0; u < direction->size(); ++u)
        for (const Instruction& i : (*direction)[u]) look_at(*tapes, estimate.layout.units[u], i);
  return most;
}

}  // namespace

std::size_t kernel_scratch_of(const TrainingEstimate& estimate) {
  if (estimate.layout.recipe != Float8Recipe::tensorwise) return products_workspace + std::max(lines_of(estimate), attention_of(estimate));
  std::size_t values = 0, gradients = 0, weights = 0;
  for (const TapePlan* tapes : {&estimate.tapes, &estimate.evaluation})
    for (const TapeBuffer& buffer : tapes->buffers) {
      if (buffer.dtype == DType::e4m3) values = std::max(values, buffer.bytes);
      if (buffer.dtype == DType::e5m2) gradients = std::max(gradients, buffer.bytes);
    }
  for (const LaidParameter& p : estimate.layout.parameters)
    if (p.fp8) weights = std::max(weights, static_cast<std::size_t>(p.description.elements()));
  return products_workspace + values + gradients + std::max(weights, attention_of(estimate));
}

}  // namespace troupe
