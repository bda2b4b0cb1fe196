#include <algorithm>

#include "src/simulation/operation_costs.hpp"

namespace troupe {
namespace {

/// What a unit's instructions are counted with.
struct Counting {
  const TrainingEstimate& estimate;
  std::size_t unit;
  const DeviceModel& device;

  [[nodiscard]] const TapeBuffer& buffer(int index) const { return estimate.tapes.buffers[static_cast<std::size_t>(index)]; }
  [[nodiscard]] double bytes(int index) const { return static_cast<double>(buffer(index).bytes); }
  [[nodiscard]] double all_bytes(const Instruction& instruction) const {
    double sum = 0;
    for (const int operand : instruction.operands) sum += bytes(operand);
    return sum;
  }
  [[nodiscard]] double weight_elements(const Instruction& instruction) const {
    if (instruction.parameter < 0) return 0;
    const ParameterSlot& slot = estimate.layout.units[unit].slots[static_cast<std::size_t>(instruction.parameter)];
    return static_cast<double>(estimate.layout.parameters[slot.parameter].description.elements());
  }
  [[nodiscard]] double weight_bytes(const Instruction& instruction) const {
    if (instruction.parameter < 0) return 0;
    const ParameterSlot& slot = estimate.layout.units[unit].slots[static_cast<std::size_t>(instruction.parameter)];
    return weight_elements(instruction) * static_cast<double>(size_of(slot.stored));
  }
  [[nodiscard]] double tokens() const { return static_cast<double>(estimate.tapes.sizes.tokens()); }

  /// Multiplications and additions; attention's without what is masked.
  [[nodiscard]] double flops(const Instruction& i) const {
    const double seen = (static_cast<double>(estimate.tapes.sizes.seq_len) + 1) / 2;
    const double attention = 4 * tokens() * seen * static_cast<double>(i.heads * i.head_dim);
    switch (i.code) {
      case InstructionCode::linear:
      case InstructionCode::linear_fp8:
      case InstructionCode::linear_backward_weight:
      case InstructionCode::linear_backward_input:
      case InstructionCode::linear_fp8_backward_weight:
      case InstructionCode::linear_fp8_backward_input: return 2 * tokens() * weight_elements(i);
      case InstructionCode::attention: return attention;
      case InstructionCode::attention_backward: return 2.5 * attention;
      default: return 0;
    }
  }
  [[nodiscard]] WorkKind kind(const Instruction& i) const {
    switch (i.code) {
      case InstructionCode::linear:
      case InstructionCode::linear_backward_weight:
      case InstructionCode::linear_backward_input: return WorkKind::product;
      case InstructionCode::linear_fp8:
      case InstructionCode::linear_fp8_backward_weight:
      case InstructionCode::linear_fp8_backward_input: return WorkKind::product_fp8;
      case InstructionCode::attention: return WorkKind::attention;
      case InstructionCode::attention_backward: return WorkKind::attention_backward;
      default: return WorkKind::memory;
    }
  }
  /// Operations a second.
  [[nodiscard]] double rate(WorkKind kind) const {
    const bool half = estimate.tapes.sizes.compute == DType::bf16;
    const double compute = (half ? device.bf16_tflops : device.fp32_tflops) * 1e12;
    switch (kind) {
      case WorkKind::product_fp8: return device.fp8_tflops > 0 ? device.fp8_tflops * 1e12 * device.fp8_efficiency : compute * device.product_efficiency;
      case WorkKind::attention: return compute * device.attention_efficiency;
      case WorkKind::attention_backward: return compute * device.attention_backward_efficiency;
      default: return compute * device.product_efficiency;
    }
  }
  /// Read and written, once each.
  [[nodiscard]] double traffic(const Instruction& i) const {
    switch (i.code) {
      case InstructionCode::embedding: return 2 * all_bytes(i);
      case InstructionCode::embedding_backward: return all_bytes(i) + 4 * weight_elements(i);  // the whole table's gradient is written
      case InstructionCode::linear_backward_weight:
      case InstructionCode::linear_fp8_backward_weight:
      case InstructionCode::rms_norm_backward: return all_bytes(i) + 4 * weight_elements(i) * (i.accumulate_weight ? 2 : 1);
      case InstructionCode::cast_fp8: return cast(bytes(i.operands[0]), bytes(i.operands[1]));
      case InstructionCode::cast_weight_fp8: return cast(weight_bytes(i), bytes(i.operands[0]));
      case InstructionCode::rotary:
      case InstructionCode::rotary_backward:
      case InstructionCode::cross_entropy: return 2 * all_bytes(i);  // in place
      default: return all_bytes(i) + weight_bytes(i);
    }
  }
  /// Tensor-wise codes: the maximum, then the codes; a device whose products want both operands along their sums makes them in two layouts.
  [[nodiscard]] double cast(double value, double codes) const { return device.fuses_casts ? value + 2 * codes : 2 * value + codes; }
  /// Beside a product's own: gathered fp8 weights are turned for the gradient of the input.
  [[nodiscard]] double extra_traffic(const Instruction& i) const {
    return device.fuses_casts && i.code == InstructionCode::linear_fp8_backward_input ? 2 * weight_bytes(i) : 0;
  }
};

}  // namespace

const char* name_of(WorkKind kind) noexcept {
  switch (kind) {
    case WorkKind::product: return "products";
    case WorkKind::product_fp8: return "fp8 products";
    case WorkKind::attention: return "attention";
    case WorkKind::attention_backward: return "attention, backward";
    case WorkKind::memory: return "memory-bound";
  }
  return "?";
}

double WorkTime::total() const noexcept {
  double sum = overhead;
  for (const double part : seconds) sum += part;
  return sum;
}

void WorkTime::add(const WorkTime& other, double times) noexcept {
  for (std::size_t i = 0; i < work_kinds; ++i) seconds[i] += times * other.seconds[i];
  flops += times * other.flops;
  bytes += times * other.bytes;
  overhead += times * other.overhead;
}

WorkTime time_of(const TrainingEstimate& estimate, std::size_t unit, bool backward, const DeviceModel& device) {
  const Counting count{estimate, unit, device};
  const double bandwidth = device.memory_gbps * 1e9 * device.memory_efficiency;
  WorkTime time;
  for (const Instruction& i : (backward ? estimate.tapes.backward : estimate.tapes.forward)[unit]) {
    const WorkKind kind = count.kind(i);
    const double flops = count.flops(i), bytes = count.traffic(i), extra = count.extra_traffic(i);
    const double arithmetic = kind == WorkKind::memory ? 0 : flops / count.rate(kind);
    time.seconds[static_cast<std::size_t>(kind)] += std::max(arithmetic, bytes / bandwidth);
    time.seconds[static_cast<std::size_t>(WorkKind::memory)] += extra / bandwidth;
    time.flops += flops;
    time.bytes += bytes + extra;
    time.overhead += device.kernel_us * 1e-6;
  }
  return time;
}

}  // namespace troupe
