#include "tools/launcher/kernel_scratch.hpp"

#include <algorithm>

namespace troupe {
namespace {

constexpr std::size_t products_workspace = std::size_t{64} << 20U;                  // src/device/cuda/linear_kernels.cpp
constexpr std::size_t attention_bytes = sizeof(float) + 2 * sizeof(std::uint16_t);  // for an element of the queries

}  // namespace

std::size_t kernel_scratch_of(const TrainingEstimate& estimate) {
  std::size_t values = 0, gradients = 0, weights = 0, attention = 0;
  for (const TapeBuffer& buffer : estimate.tapes.buffers) {
    if (buffer.dtype == DType::e4m3) values = std::max(values, buffer.bytes);
    if (buffer.dtype == DType::e5m2) gradients = std::max(gradients, buffer.bytes);
  }
  for (const LaidParameter& p : estimate.layout.parameters)
    if (p.fp8) weights = std::max(weights, static_cast<std::size_t>(p.description.elements()));
  for (const auto& unit : estimate.tapes.backward)
    for (const Instruction& i : unit)
      if (i.code == InstructionCode::attention_backward)
        attention = std::max(attention, static_cast<std::size_t>(estimate.tapes.sizes.tokens() * i.heads * i.head_dim) * attention_bytes);
  return products_workspace + values + gradients + std::max(weights, attention);
}

}  // namespace troupe
