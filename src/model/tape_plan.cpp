#include "src/model/tape_plan.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "src/model/amax_joints.hpp"
#include "src/model/arena.hpp"
#include "src/model/tape_backward.hpp"

namespace troupe {

const char* name_of(BufferKind kind) noexcept {
  switch (kind) {
    case BufferKind::activation: return "activations";
    case BufferKind::float8: return "fp8 values";
    case BufferKind::gradient: return "activation gradients";
    case BufferKind::scale: return "fp8 scales";
  }
  return "unknown";
}

bool reads_weights(const std::vector<Instruction>& instructions) noexcept {
  return std::any_of(instructions.begin(), instructions.end(), [](const Instruction& i) {
    const bool writes_only = i.code == InstructionCode::embedding_backward || i.code == InstructionCode::linear_backward_weight ||
                             i.code == InstructionCode::linear_fp8_backward_weight;
    return i.parameter >= 0 && !writes_only;
  });
}

int TapeEmitter::buffer(std::string name, BufferKind kind, DType dtype, std::int64_t rows, std::int64_t cols) {
  const auto bytes = static_cast<std::size_t>(rows * cols) * size_of(dtype);
  plan_.buffers.push_back(
      {.name = std::move(name), .kind = kind, .dtype = dtype, .rows = rows, .cols = cols, .first = std::numeric_limits<std::uint32_t>::max(), .bytes = bytes});
  return static_cast<int>(plan_.buffers.size() - 1);
}

int TapeEmitter::value_buffer(const std::string& prefix, const TapeValue& value, BufferKind kind) {
  return buffer(prefix + value.name, kind, plan_.sizes.type_of(value), plan_.sizes.tokens(), value.width);
}

std::pair<int, int> TapeEmitter::float8_buffer(const std::string& name, const Cast& cast, std::int64_t rows, std::int64_t cols) {
  const int data = buffer(name + "." + std::string(name_of(cast.dtype)), BufferKind::float8, cast.dtype, rows, cols);
  plan_.buffers.back().scaling = cast.scaling;
  plan_.buffers.back().powers = cast.powers;
  const std::int64_t scales = cast.scaling == Float8Scaling::rows ? rows : cast.scaling == Float8Scaling::columns ? cols : 1;
  return {data, buffer(name + ".scale", BufferKind::scale, DType::f32, 1, cast.powers ? scales : 2)};
}

void TapeEmitter::emit(Instruction instruction) {
  const auto touch = [&](int index) {
    TapeBuffer& b = plan_.buffers[static_cast<std::size_t>(index)];
    b.first = std::min(b.first, now_);
    b.last = std::max(b.last, now_);
  };
  for (const int operand : instruction.operands) touch(operand);
  if (instruction.weight >= 0) {
    touch(instruction.weight);
    touch(instruction.weight + 1);
  }
  ++now_;
  list_->push_back(std::move(instruction));
}

int TapeEmitter::cast_weight(const UnitDescription& unit, const UnitLayout& layout, int parameter, const Cast& cast) {
  const auto p = static_cast<std::size_t>(parameter);
  if (layout.slots[p].stored == DType::e4m3) return -1;
  const auto [data, scale] = float8_buffer(unit.parameters[p].name, cast, unit.parameters[p].rows, unit.parameters[p].cols);
  emit({.code = InstructionCode::cast_weight_fp8, .operands = {data, scale}, .parameter = parameter});
  return data;
}

namespace {

/// The forward pass of one unit.
class ForwardEmitter {
 public:
  ForwardEmitter(TapeEmitter& out, const UnitDescription& unit, const UnitLayout& layout, UnitValues& values, std::string prefix)
      : out_(out), unit_(unit), layout_(layout), values_(values), prefix_(std::move(prefix)), casts_(Float8Casts::of(out.recipe())) {}

  void run(const TapeStep& step) {
    switch (step.type) {
      case OperationType::embedding: return emit(InstructionCode::embedding, step, {result(step, 0)});
      case OperationType::rms_norm: return emit(InstructionCode::rms_norm, step, {in(step, 0), result(step, 0), result(step, 1)});
      case OperationType::linear: return linear(step);
      case OperationType::rotary: values_.buffer[step.out[0]] = in(step, 0); return emit(InstructionCode::rotary, step, {in(step, 0)});
      case OperationType::attention: return emit(InstructionCode::attention, step, {in(step, 0), in(step, 1), in(step, 2), result(step, 0), result(step, 1)});
      case OperationType::swiglu: return emit(InstructionCode::swiglu, step, {in(step, 0), in(step, 1), result(step, 0)});
      case OperationType::add: return emit(InstructionCode::add, step, {in(step, 0), in(step, 1), result(step, 0)});
      case OperationType::cross_entropy: return emit(InstructionCode::cross_entropy, step, {in(step, 0)});
    }
  }

  /// The fp8 form of an fp8 linear's input: made once for all its readers (q, k, v; gate, up), and for backward.
  void cast_input(const TapeStep& step) {
    if (!in_fp8(step) || values_.float8[step.in[0]].first >= 0) return;
    const TapeValue& value = unit_.tape.values[step.in[0]];
    const auto [codes, scale] = out_.float8_buffer(prefix_ + value.name, casts_.along_row, out_.sizes().tokens(), value.width);
    values_.float8[step.in[0]] = {codes, scale};
    out_.emit({.code = InstructionCode::cast_fp8, .operands = {in(step, 0), codes, scale}});
  }

 private:
  [[nodiscard]] int in(const TapeStep& step, std::size_t i) const { return values_.buffer[step.in[i]]; }
  int result(const TapeStep& step, std::size_t i) {
    const ValueIndex v = step.out[i];
    return values_.buffer[v] = out_.value_buffer(prefix_, unit_.tape.values[v], BufferKind::activation);
  }
  void emit(InstructionCode code, const TapeStep& step, std::vector<int> operands, int weight = -1) {
    out_.emit({.code = code,
               .operands = std::move(operands),
               .parameter = step.parameter,
               .weight = weight,
               .heads = step.heads,
               .kv_heads = step.kv_heads,
               .head_dim = step.head_dim,
               .eps = step.eps});
  }
  [[nodiscard]] bool in_fp8(const TapeStep& step) const {
    return step.type == OperationType::linear && layout_.slots[static_cast<std::size_t>(step.parameter)].fp8;
  }
  void linear(const TapeStep& step) {
    if (!in_fp8(step)) return emit(InstructionCode::linear, step, {in(step, 0), result(step, 0)});
    cast_input(step);
    const std::pair<int, int> x = values_.float8[step.in[0]];
    const int weight = out_.cast_weight(unit_, layout_, step.parameter, casts_.along_row);
    emit(InstructionCode::linear_fp8, step, {x.first, x.second, result(step, 0)}, weight);
  }

  TapeEmitter& out_;
  const UnitDescription& unit_;
  const UnitLayout& layout_;
  UnitValues& values_;
  std::string prefix_;
  Float8Casts casts_;
};

UnitValues values_of(const Tape& tape, int input) {
  UnitValues values{std::vector<int>(tape.values.size(), -1), std::vector<std::pair<int, int>>(tape.values.size(), {-1, -1})};
  if (tape.has_input) values.buffer[0] = input;
  return values;
}

/// Runs again what the unit's backward needs and forward did not keep; returns where all is then.
UnitValues restore_values(TapeEmitter& emitter, const UnitDescription& unit, const UnitLayout& layout, const UnitValues& forward_values,
                          const std::vector<bool>& kept, const std::vector<bool>& again) {
  UnitValues values = values_of(unit.tape, forward_values.buffer[0]);
  for (std::size_t i = 0; i < kept.size(); ++i) {
    for (const ValueIndex v : unit.tape.steps[i].out) {
      if (!kept[i]) continue;
      values.buffer[v] = forward_values.buffer[v];
      values.float8[v] = forward_values.float8[v];
    }
  }
  ForwardEmitter forward(emitter, unit, layout, values, unit.name + " again ");
  const Float8Casts casts = Float8Casts::of(emitter.recipe());
  const bool shared = !casts.separate && !casts.high_precision;  // backward reads what forward cast
  for (std::size_t i = 0; i < again.size(); ++i) {
    if (again[i]) {
      forward.run(unit.tape.steps[i]);
    } else if (shared) {
      forward.cast_input(unit.tape.steps[i]);
    }
  }
  return values;
}

void place(TapePlan& plan, std::uint32_t forward_end) {
  std::vector<Lifetime> lifetimes;
  for (TapeBuffer& b : plan.buffers) {
    b.saved = b.first < forward_end && b.last >= forward_end;
    lifetimes.push_back({b.first, b.last, b.bytes});
  }
  const ArenaPlacement placement = place_in_arena(lifetimes);
  plan.arena_bytes = placement.bytes;
  plan.peak_bytes = placement.peak;
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    TapeBuffer& b = plan.buffers[i];
    b.offset = placement.offsets[i];
    if (b.first > placement.peak_at || b.last < placement.peak_at) continue;
    (b.saved ? plan.peak_saved : plan.peak_by_kind[static_cast<std::size_t>(b.kind)]) += (b.bytes + 63) / 64 * 64;
  }
}

}  // namespace

TapePlan plan_tapes(const ModelDescription& model, const WeightLayout& layout, const TapeSizes& sizes, const TapePlanOptions& options) {
  TapePlan plan = emit_tapes(model, layout, sizes, options);
  std::uint32_t forward_end = 0;
  for (const auto& unit : plan.forward) forward_end += static_cast<std::uint32_t>(unit.size());
  place(plan, forward_end);
  return plan;
}

TapePlan emit_tapes(const ModelDescription& model, const WeightLayout& layout, const TapeSizes& sizes, const TapePlanOptions& options) {
  TapePlan plan;
  plan.sizes = sizes;
  plan.forward.resize(model.units.size());
  plan.backward.resize(model.units.size());
  TapeEmitter emitter(plan, layout.recipe);
  std::vector<UnitValues> values;
  int output = -1;
  for (std::size_t u = 0; u < model.units.size(); ++u) {
    const UnitDescription& unit = model.units[u];
    values.push_back(values_of(unit.tape, output));
    emitter.begin(plan.forward[u]);
    ForwardEmitter forward(emitter, unit, layout.units[u], values.back(), unit.name + " ");
    for (const TapeStep& step : unit.tape.steps) {
      if (step.type == OperationType::cross_entropy) plan.logits = values.back().buffer[step.in[0]];
      if (step.type != OperationType::cross_entropy || !options.inference || options.with_loss) forward.run(step);
    }
    output = unit.tape.output >= 0 ? values.back().buffer[static_cast<std::size_t>(unit.tape.output)] : -1;
  }
  int gradient = -1;
  for (std::size_t u = model.units.size(); u-- > 0 && !options.inference;) {
    const UnitDescription& unit = model.units[u];
    emitter.begin(plan.backward[u]);
    if (!options.kept.empty() && is_block(unit.tape)) {
      const std::vector<bool> again = steps_to_run_again(unit.tape, options.kept[u]);
      const bool any = std::find(again.begin(), again.end(), true) != again.end();
      if (any) values[u] = restore_values(emitter, unit, layout.units[u], values[u], options.kept[u], again);
    }
    gradient = emit_backward(emitter, unit, layout.units[u], values[u], gradient);
  }
  join_amaxes(plan);
  return plan;
}

}  // namespace troupe
