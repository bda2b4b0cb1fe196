#include "src/model/tape_backward.hpp"

namespace troupe {
namespace {

/// Reverses a tape. A value's gradient is written by its last reader and added to by the others; where a gradient passes through an
/// addition unchanged, both sides share its memory until one of them would be overwritten (copy on write).
class BackwardEmitter {
 public:
  BackwardEmitter(TapeEmitter& out, const UnitDescription& unit, const UnitLayout& layout, const UnitValues& values)
      : out_(out),
        unit_(unit),
        layout_(layout),
        values_(values),
        casts_(Float8Casts::of(out.recipe())),
        by_columns_(unit.tape.values.size(), {-1, -1}),
        gradient_(unit.tape.values.size(), -1),
        consumed_(unit.tape.values.size(), false),
        weight_written_(unit.parameters.size(), false) {}

  int run(int output_gradient) {
    if (unit_.tape.output >= 0) gradient_[static_cast<std::size_t>(unit_.tape.output)] = output_gradient;
    for (auto step = unit_.tape.steps.rbegin(); step != unit_.tape.steps.rend(); ++step) {
      reverse(*step);
      if (!step->out.empty()) consumed_[step->out[0]] = true;
    }
    return unit_.tape.has_input ? gradient_[0] : -1;
  }

 private:
  struct Target {
    int buffer;
    bool accumulate;
  };

  void reverse(const TapeStep& step) {
    const int dy = step.out.empty() ? -1 : gradient_[step.out[0]];
    switch (step.type) {
      case OperationType::cross_entropy: gradient_[step.in[0]] = value(step.in[0]); return;  // the logits became their gradient
      case OperationType::embedding: return emit(InstructionCode::embedding_backward, step, {dy});
      case OperationType::linear: return linear(step, dy);
      case OperationType::rms_norm: {
        const Target dx = target(step.in[0]);
        return emit(InstructionCode::rms_norm_backward, step, {dy, value(step.in[0]), value(step.out[1]), dx.buffer}, dx.accumulate);
      }
      case OperationType::rotary: {
        own(step.out[0]);
        gradient_[step.in[0]] = gradient_[step.out[0]];
        return emit(InstructionCode::rotary_backward, step, {gradient_[step.in[0]]});
      }
      case OperationType::attention: {
        std::vector<int> operands{dy, value(step.in[0]), value(step.in[1]), value(step.in[2]), value(step.out[0]), value(step.out[1])};
        return overwriting(InstructionCode::attention_backward, step, std::move(operands));
      }
      case OperationType::swiglu: return overwriting(InstructionCode::swiglu_backward, step, {dy, value(step.in[0]), value(step.in[1])});
      case OperationType::add:
        for (const ValueIndex v : step.in) pass_through(v, dy);
        return;
    }
  }

  [[nodiscard]] int value(ValueIndex v) const { return values_.buffer[v]; }
  [[nodiscard]] int new_gradient(ValueIndex v) {
    const TapeValue& described = unit_.tape.values[v];
    return out_.buffer(unit_.name + " d " + described.name, BufferKind::gradient, out_.sizes().compute, out_.sizes().tokens(), described.width);
  }
  void emit(InstructionCode code, const TapeStep& step, std::vector<int> operands, bool accumulate = false, int weight = -1) {
    Instruction instruction{.code = code,
                            .operands = std::move(operands),
                            .parameter = step.parameter,
                            .weight = weight,
                            .accumulate = accumulate,
                            .heads = step.heads,
                            .kv_heads = step.kv_heads,
                            .head_dim = step.head_dim,
                            .eps = step.eps};
    if (step.parameter >= 0 && code != InstructionCode::linear_backward_input && code != InstructionCode::linear_fp8_backward_input) {
      instruction.accumulate_weight = weight_written_[static_cast<std::size_t>(step.parameter)];
      weight_written_[static_cast<std::size_t>(step.parameter)] = true;
    }
    out_.emit(std::move(instruction));
  }

  /// Makes v's gradient its own, if another value that still needs it shares the memory.
  void own(ValueIndex v) {
    for (std::size_t w = 0; w < gradient_.size(); ++w) {
      if (w == v || gradient_[w] != gradient_[v] || consumed_[w]) continue;
      const int copy = new_gradient(v);
      out_.emit({.code = InstructionCode::copy, .operands = {gradient_[v], copy}});
      gradient_[v] = copy;
      return;
    }
  }
  Target target(ValueIndex v) {
    if (gradient_[v] < 0) return {gradient_[v] = new_gradient(v), false};
    own(v);
    return {gradient_[v], true};
  }
  void sum_into(ValueIndex v, int addend) {
    own(v);
    out_.emit({.code = InstructionCode::add, .operands = {gradient_[v], addend, gradient_[v]}});
  }
  void pass_through(ValueIndex v, int dy) {
    if (gradient_[v] < 0) {
      gradient_[v] = dy;
    } else {
      sum_into(v, dy);
    }
  }
  /// Kernels that write their inputs' gradients and cannot add to them.
  void overwriting(InstructionCode code, const TapeStep& step, std::vector<int> operands) {
    std::vector<std::pair<ValueIndex, int>> sums;
    for (const ValueIndex v : step.in) {
      const int fresh = new_gradient(v);
      operands.push_back(fresh);
      if (gradient_[v] < 0) {
        gradient_[v] = fresh;
      } else {
        sums.emplace_back(v, fresh);
      }
    }
    emit(code, step, std::move(operands));
    for (const auto& [v, addend] : sums) sum_into(v, addend);
  }
  std::pair<int, int> cast(int from, const std::string& name, const TapeEmitter::Cast& how, std::int64_t width) {
    const auto [codes, scales] = out_.float8_buffer(unit_.name + name, how, out_.sizes().tokens(), width);
    out_.emit({.code = InstructionCode::cast_fp8, .operands = {from, codes, scales}});
    return {codes, scales};
  }
  /// Made once for all readers of the value.
  std::pair<int, int> input_by_columns(ValueIndex v) {
    const TapeValue& described = unit_.tape.values[v];
    if (by_columns_[v].first < 0) by_columns_[v] = cast(value(v), " " + described.name + " by columns", casts_.along_tokens, described.width);
    return by_columns_[v];
  }
  void linear(const TapeStep& step, int dy) {
    if (!layout_.slots[static_cast<std::size_t>(step.parameter)].fp8) {
      emit(InstructionCode::linear_backward_weight, step, {dy, value(step.in[0])});
      const Target dx = target(step.in[0]);
      return emit(InstructionCode::linear_backward_input, step, {dy, dx.buffer}, dx.accumulate);
    }
    const TapeValue& y = unit_.tape.values[step.out[0]];
    const auto [dy8, dy_scale] = cast(dy, " d " + y.name, casts_.gradient, y.width);
    if (casts_.high_precision) {
      emit(InstructionCode::linear_backward_weight, step, {dy, value(step.in[0])});
    } else if (casts_.separate) {
      const auto [dy_columns, dy_columns_scale] = cast(dy, " d " + y.name + " by columns", casts_.along_tokens, y.width);
      const auto [x_columns, x_columns_scale] = input_by_columns(step.in[0]);
      emit(InstructionCode::linear_fp8_backward_weight, step, {dy_columns, dy_columns_scale, x_columns, x_columns_scale});
    } else {
      const auto [x8, x_scale] = values_.float8[step.in[0]];
      emit(InstructionCode::linear_fp8_backward_weight, step, {dy8, dy_scale, x8, x_scale});
    }
    const int weight = out_.cast_weight(unit_, layout_, step.parameter, casts_.weight);
    const Target dx = target(step.in[0]);
    emit(InstructionCode::linear_fp8_backward_input, step, {dy8, dy_scale, dx.buffer}, dx.accumulate, weight);
  }

  TapeEmitter& out_;
  const UnitDescription& unit_;
  const UnitLayout& layout_;
  const UnitValues& values_;
  Float8Casts casts_;
  std::vector<std::pair<int, int>> by_columns_;
  std::vector<int> gradient_;
  std::vector<bool> consumed_;
  std::vector<bool> weight_written_;
};

}  // namespace

Float8Casts Float8Casts::of(Float8Recipe recipe) noexcept {
  using S = Float8Scaling;
  const TapeEmitter::Cast tensor{}, e5m2{.dtype = DType::e5m2}, rows{DType::e4m3, S::rows, true}, columns{DType::e4m3, S::columns, true};
  switch (recipe) {
    case Float8Recipe::tensorwise: return {.along_row = tensor, .gradient = e5m2, .weight = tensor, .along_tokens = {}};
    case Float8Recipe::rowwise: return {.along_row = rows, .gradient = rows, .weight = columns, .along_tokens = columns, .separate = true};
    case Float8Recipe::rowwise_with_gw_hp:
      return {.along_row = rows, .gradient = rows, .weight = {DType::e4m3, S::tensor, true}, .along_tokens = {}, .high_precision = true};
  }
  return {};
}

int emit_backward(TapeEmitter& out, const UnitDescription& unit, const UnitLayout& layout, const UnitValues& values, int output_gradient) {
  return BackwardEmitter(out, unit, layout, values).run(output_gradient);
}

}  // namespace troupe
