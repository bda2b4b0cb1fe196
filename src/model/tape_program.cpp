#include "src/model/tape_program.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace troupe {

/// What one forward or backward of a unit is called with.
struct TapeProgram::Call {
  Stream& stream;
  const UnitLayout& unit;
  std::size_t number;  ///< of the unit
  std::span<const std::byte> batch;
  std::span<const std::byte> weights;
  std::span<std::byte> gradients;
  Micro micro;
};

namespace {

void require(const char* what, std::size_t found, std::size_t needed, Unit unit) {
  if (found < needed) {
    throw std::invalid_argument(std::string(what) + " of unit " + std::to_string(unit.value()) + " has " + std::to_string(found) + " bytes; the layout needs " +
                                std::to_string(needed));
  }
}

/// Kernels take one kind of view; what is only read is never written through it.
TensorView readable(std::span<const std::byte> bytes, std::size_t offset, DType dtype, const Shape& shape, DeviceId device) {
  return TensorView::contiguous(const_cast<std::byte*>(bytes.data() + offset), dtype, shape, device);
}

}  // namespace

namespace {

/// The result of `first` that `second` reads, if the two can be one call; -1: they cannot.
int joint(const Instruction& first, const Instruction& second) {
  const bool casts = second.code == InstructionCode::cast_fp8;
  if (first.code == InstructionCode::rms_norm && casts && second.operands[0] == first.operands[1]) return first.operands[1];
  if (first.code == InstructionCode::swiglu && casts && second.operands[0] == first.operands[2]) return first.operands[2];
  const bool adds = second.code == InstructionCode::add && (second.operands[0] == first.operands[2] || second.operands[1] == first.operands[2]);
  if (first.code == InstructionCode::linear_fp8 && adds && second.operands[0] != second.operands[1]) return first.operands[2];
  return -1;
}

bool names(const Instruction& instruction, int buffer) { return std::ranges::find(instruction.operands, buffer) != instruction.operands.end(); }

/// The second's own results are written while the first's operands are still read: the plan, which counts them one after the other, may
/// have put them in the same place.
bool in_each_others_way(const TapePlan& plan, const Instruction& first, const Instruction& second) {
  return std::ranges::any_of(second.operands, [&](int late) {
    const TapeBuffer& b = plan.buffers[static_cast<std::size_t>(late)];
    return std::ranges::any_of(first.operands, [&](int early) {
      const TapeBuffer& a = plan.buffers[static_cast<std::size_t>(early)];
      return early != late && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
    });
  });
}

/// A sum that a product was written into directly leaves the product itself unwritten, so nobody else may read it.
bool read_by_others(const TapePlan& plan, int buffer) {
  std::size_t users = 0;
  for (const auto* units : {&plan.forward, &plan.backward}) {
    for (const auto& unit : *units) users += static_cast<std::size_t>(std::ranges::count_if(unit, [&](const Instruction& i) { return names(i, buffer); }));
  }
  return users != 2;
}

std::vector<std::vector<Joint>> joined_in(const TapePlan& plan, const std::vector<std::vector<Instruction>>& units) {
  std::vector<std::vector<Joint>> joined;
  for (const auto& unit : units) {
    std::vector<Joint>& of_unit = joined.emplace_back(unit.size());
    for (std::size_t i = 0; i + 1 < unit.size(); ++i) {
      if (i > 0 && of_unit[i - 1].made) continue;
      const int between = joint(unit[i], unit[i + 1]);
      if (between < 0 || in_each_others_way(plan, unit[i], unit[i + 1])) continue;
      const bool read = read_by_others(plan, between);
      of_unit[i] = {.made = unit[i].code != InstructionCode::linear_fp8 || !read, .value_read = read};
    }
  }
  return joined;
}

}  // namespace

TapeProgram::TapeProgram(Inputs inputs)
    : in_(std::move(inputs)),
      fused_(in_.layout.recipe == Float8Recipe::tensorwise ? dynamic_cast<FusedKernels*>(&in_.kernels) : nullptr),
      forward_joined_(joined_in(in_.plan, in_.plan.forward)),
      backward_joined_(joined_in(in_.plan, in_.plan.backward)) {}

void TapeProgram::run_all(const Call& call, const std::vector<Instruction>& instructions, const std::vector<Joint>& joined) const {
  for (std::size_t i = 0; i < instructions.size(); ++i) {
    if (fused_ != nullptr && joined[i].made) {
      run_joined(call, instructions[i], instructions[i + 1], joined[i].value_read);
      ++i;
    } else {
      run(call, instructions[i]);
    }
  }
}

void TapeProgram::run_joined(const Call& call, const Instruction& first, const Instruction& second, bool value_read) const {
  const std::vector<int>& o = first.operands;
  if (first.code == InstructionCode::rms_norm) {
    TensorView rstd = view(o[2]);
    rstd.shape = Shape{rstd.shape[0]};
    return fused_->rms_norm_cast(call.stream, view(o[0]), weight(call, first.parameter), first.eps, view(o[1]), value_read, rstd, cast_target(second, 1));
  }
  if (first.code == InstructionCode::swiglu) return fused_->swiglu_cast(call.stream, view(o[0]), view(o[1]), view(o[2]), cast_target(second, 1));
  const int residual = second.operands[0] == o[2] ? second.operands[1] : second.operands[0];
  fused_->linear_fp8_add(call.stream, float8(o[0], o[1]), float8_weight(call, first), view(residual), view(second.operands[2]));
}

float* TapeProgram::amax(const Instruction& i, std::size_t result) const {
  return fused_ != nullptr && result < i.amaxes.size() && i.amaxes[result] >= 0 ? view(i.amaxes[result]).as<float>() : nullptr;
}

CastTarget TapeProgram::cast_target(const Instruction& instruction, std::size_t first) const {
  auto* scalars = view(instruction.operands[first + 1]).as<float>();
  return {view(instruction.operands[first]), scalars, scalars + 1, in_.totals != nullptr ? &in_.totals->sums.activations : nullptr};
}

void TapeProgram::forward(Stream& stream, Step, Micro micro, Unit unit, std::span<const std::byte> batch, std::span<const std::byte> weights) {
  const UnitLayout& layout = in_.layout.units.at(unit.value());
  require("weights slot", weights.size(), layout.weights_bytes, unit);
  const Call call{stream, layout, unit.value(), batch, weights, {}, micro};
  run_all(call, in_.plan.forward[unit.value()], forward_joined_[unit.value()]);
}

void TapeProgram::backward(Stream& stream, Step, Micro micro, Unit unit, std::span<const std::byte> batch, std::span<const std::byte> weights,
                           std::span<std::byte> gradients) {
  const UnitLayout& layout = in_.layout.units.at(unit.value());
  if (reads_weights(in_.plan.backward[unit.value()])) require("weights slot", weights.size(), layout.weights_bytes, unit);
  require("gradients slot", gradients.size(), layout.gradients_bytes, unit);
  const Call call{stream, layout, unit.value(), batch, weights, gradients, micro};
  for (const ParameterSlot& slot : layout.slots) {  // rows of padding: zero, so that what the ranks send is defined
    const LaidParameter& p = in_.layout.parameters[slot.parameter];
    const std::int64_t padding = p.rows_per_rank * in_.layout.world - p.description.rows;
    if (padding == 0) continue;
    std::byte* end = gradients.data() + slot.gradient_offset + static_cast<std::size_t>(p.description.elements()) * size_of(in_.layout.gradient);
    in_.kernels.fill(stream, TensorView::contiguous(end, in_.layout.gradient, {padding, p.description.cols}, in_.rotary.device), 0.0);
  }
  run_all(call, in_.plan.backward[unit.value()], backward_joined_[unit.value()]);
}

TensorView TapeProgram::logits() const { return view(in_.plan.logits); }

void TapeProgram::run(const Call& call, const Instruction& i) const {
  if (i.code < InstructionCode::embedding_backward) return run_forward(call, i);
  run_backward(call, i);
}

void TapeProgram::run_forward(const Call& call, const Instruction& i) const {
  Kernels& k = in_.kernels;
  const std::vector<int>& o = i.operands;
  switch (i.code) {
    case InstructionCode::embedding: return k.embedding(call.stream, batch_part(call, 0), weight(call, i.parameter), view(o[0]));
    case InstructionCode::rms_norm: {
      TensorView rstd = view(o[2]);
      rstd.shape = Shape{rstd.shape[0]};
      return k.rms_norm(call.stream, view(o[0]), weight(call, i.parameter), i.eps, view(o[1]), rstd);
    }
    case InstructionCode::linear: return k.linear(call.stream, view(o[0]), weight(call, i.parameter), view(o[1]));
    case InstructionCode::linear_fp8: return k.linear_fp8(call.stream, float8(o[0], o[1]), float8_weight(call, i), view(o[2]));
    case InstructionCode::rotary: return k.rotary(call.stream, by_heads(o[0], i.heads, i.head_dim, false), rotary_table(), false);
    case InstructionCode::attention: {
      const double scale = 1.0 / std::sqrt(static_cast<double>(i.head_dim));
      if (in_.cache != nullptr) return attend_cached(call, i, scale);
      return k.attention(call.stream, by_heads(o[0], i.heads, i.head_dim, true), by_heads(o[1], i.kv_heads, i.head_dim, true),
                         by_heads(o[2], i.kv_heads, i.head_dim, true), scale, by_heads(o[3], i.heads, i.head_dim, true), log_sum_exp(o[4], i.heads),
                         starts(call));
    }
    case InstructionCode::swiglu: return k.swiglu(call.stream, view(o[0]), view(o[1]), view(o[2]));
    case InstructionCode::add: return k.add(call.stream, view(o[0]), view(o[1]), view(o[2]));
    case InstructionCode::cross_entropy:
      if (in_.loss) return in_.loss(call.stream, view(o[0]), batch_part(call, 1), in_.gradient_scale, &in_.totals->sums);
      if (in_.marks != nullptr) return cross_entropy_by_rows(call, view(o[0]));
      return k.cross_entropy(call.stream, view(o[0]), batch_part(call, 1), in_.gradient_scale, &in_.totals->sums);
    case InstructionCode::cast_fp8: return cast_to_float8(call, view(o[0]), i, 1);
    case InstructionCode::cast_weight_fp8: return cast_to_float8(call, weight(call, i.parameter), i, 0);
    default: throw std::logic_error("an instruction of backward among those of forward");
  }
}

void TapeProgram::run_backward(const Call& call, const Instruction& i) const {
  Kernels& k = in_.kernels;
  const std::vector<int>& o = i.operands;
  switch (i.code) {
    case InstructionCode::embedding_backward:
      return k.embedding_backward(call.stream, batch_part(call, 0), view(o[0]), weight_gradient(call, i.parameter), i.accumulate_weight);
    case InstructionCode::rms_norm_backward: {
      TensorView rstd = view(o[2]);
      rstd.shape = Shape{rstd.shape[0]};
      if (float* const largest = amax(i, 0))
        return fused_->rms_norm_backward_amax(call.stream, view(o[0]), view(o[1]), weight(call, i.parameter), rstd, view(o[3]), i.accumulate,
                                              weight_gradient(call, i.parameter), i.accumulate_weight, largest);
      return k.rms_norm_backward(call.stream, view(o[0]), view(o[1]), weight(call, i.parameter), rstd, view(o[3]), i.accumulate,
                                 weight_gradient(call, i.parameter), i.accumulate_weight);
    }
    case InstructionCode::linear_backward_weight:
      return k.linear_backward_weight(call.stream, view(o[0]), view(o[1]), weight_gradient(call, i.parameter), i.accumulate_weight);
    case InstructionCode::linear_backward_input: return k.linear_backward_input(call.stream, view(o[0]), weight(call, i.parameter), view(o[1]), i.accumulate);
    case InstructionCode::linear_fp8_backward_weight:
      return k.linear_fp8_backward_weight(call.stream, float8(o[0], o[1]), float8(o[2], o[3]), weight_gradient(call, i.parameter), i.accumulate_weight);
    case InstructionCode::linear_fp8_backward_input:
      return k.linear_fp8_backward_input(call.stream, float8(o[0], o[1]), float8_weight(call, i), view(o[2]), i.accumulate);
    case InstructionCode::rotary_backward:
      if (float* const largest = amax(i, 0)) return fused_->rotary_amax(call.stream, by_heads(o[0], i.heads, i.head_dim, false), in_.rotary, true, largest);
      return k.rotary(call.stream, by_heads(o[0], i.heads, i.head_dim, false), in_.rotary, true);
    case InstructionCode::attention_backward: {
      const auto q = [&](std::size_t n) { return by_heads(o[n], i.heads, i.head_dim, true); };
      const auto kv = [&](std::size_t n) { return by_heads(o[n], i.kv_heads, i.head_dim, true); };
      const double scale = 1.0 / std::sqrt(static_cast<double>(i.head_dim));
      return k.attention_backward(call.stream, q(0), q(1), kv(2), kv(3), q(4), log_sum_exp(o[5], i.heads), scale, q(6), kv(7), kv(8), starts(call));
    }
    case InstructionCode::swiglu_backward:
      if (amax(i, 0) != nullptr || amax(i, 1) != nullptr)
        return fused_->swiglu_backward_amax(call.stream, view(o[0]), view(o[1]), view(o[2]), view(o[3]), view(o[4]), amax(i, 0), amax(i, 1));
      return k.swiglu_backward(call.stream, view(o[0]), view(o[1]), view(o[2]), view(o[3]), view(o[4]));
    case InstructionCode::copy: return k.cast(call.stream, view(o[0]), view(o[1]));
    default: throw std::logic_error("an instruction of forward among those of backward");
  }
}

/// Of the positions at hand: all from 0 on, or those after what the cache holds.
TensorView TapeProgram::rotary_table() const { return in_.cache == nullptr ? in_.rotary : in_.rotary.rows(in_.cache->length, in_.plan.sizes.tokens()); }

void TapeProgram::attend_cached(const Call& call, const Instruction& i, double scale) const {
  const std::vector<int>& o = i.operands;
  const KeyValueCache::Unit& kept = in_.cache->units[call.number];
  const std::int64_t tokens = in_.plan.sizes.tokens(), all = in_.cache->length + tokens;
  in_.kernels.cast(call.stream, view(o[1]), kept.keys.rows(in_.cache->length, tokens));
  in_.kernels.cast(call.stream, view(o[2]), kept.values.rows(in_.cache->length, tokens));
  const auto by_heads_of = [&](const TensorView& cached) {
    return TensorView::contiguous(cached.data, cached.dtype, {all, i.kv_heads, i.head_dim}, cached.device);
  };
  in_.cache->attention->attention_cached(call.stream, by_heads(o[0], i.heads, i.head_dim, false), by_heads_of(kept.keys), by_heads_of(kept.values), scale,
                                         by_heads(o[3], i.heads, i.head_dim, false));
}

/// As the buffer of the codes says; the scales lie in the buffer behind it, tensor-wise as (amax, scale).
void TapeProgram::cast_to_float8(const Call& call, TensorView from, const Instruction& i, std::size_t to) const {
  if (fused_ != nullptr && i.amax_found) return fused_->cast_fp8_with_amax(call.stream, from, cast_target(i, to));
  if (fused_ != nullptr) return fused_->cast_fp8(call.stream, from, cast_target(i, to));
  const TapeBuffer& described = in_.plan.buffers[static_cast<std::size_t>(i.operands[to])];
  const TensorView codes = view(i.operands[to]);
  const TensorView scales = view(i.operands[to + 1]);
  Float8Counts* const counts = in_.totals != nullptr ? &in_.totals->sums.activations : nullptr;
  if (described.powers) {
    const TensorView flat = TensorView::contiguous(scales.data, scales.dtype, {scales.shape[1]}, scales.device);
    return in_.kernels.quantize_by_powers(call.stream, from, described.scaling, flat, codes, counts);
  }
  auto* scalars = scales.as<float>();
  in_.kernels.amax(call.stream, from, scalars, false);
  in_.kernels.scale_from_amax(call.stream, scalars, codes.dtype, scalars + 1);
  in_.kernels.quantize(call.stream, from, scalars + 1, codes, counts);
}

/// The same sums, row by row, with a mark behind each.
void TapeProgram::cross_entropy_by_rows(const Call& call, const TensorView& logits) const {
  const auto [rows, seq_len] = std::pair(in_.plan.sizes.rows, in_.plan.sizes.seq_len);
  const TensorView labels = batch_part(call, 1);
  VerdictSums* const sums = &in_.totals->sums;
  const auto doubles = [this](void* first) { return TensorView::contiguous(first, DType::f64, {2}, in_.rotary.device); };
  for (std::int64_t row = 0; row < rows; ++row) {
    in_.kernels.cross_entropy(call.stream, logits.rows(row * seq_len, seq_len), labels.rows(row * seq_len, seq_len), in_.gradient_scale, sums);
    in_.kernels.cast(call.stream, doubles(&sums->loss), doubles(in_.marks + static_cast<std::int64_t>(call.micro.value()) * rows + row));
  }
}

TensorView TapeProgram::view(int buffer) const {
  const TapeBuffer& b = in_.plan.buffers[static_cast<std::size_t>(buffer)];
  return TensorView::contiguous(in_.arena.data() + b.offset, b.dtype, {b.rows, b.cols}, in_.rotary.device);
}

/// [T, heads, d], or [B, S, heads, d] by rows.
TensorView TapeProgram::by_heads(int buffer, std::int64_t heads, std::int64_t head_dim, bool by_rows) const {
  const TensorView flat = view(buffer);
  const TapeSizes& s = in_.plan.sizes;
  const Shape shape = by_rows ? Shape{s.rows, s.seq_len, heads, head_dim} : Shape{s.tokens(), heads, head_dim};
  return TensorView::contiguous(flat.data, flat.dtype, shape, flat.device);
}

TensorView TapeProgram::log_sum_exp(int buffer, std::int64_t heads) const {
  const TensorView flat = view(buffer);
  return TensorView::contiguous(flat.data, flat.dtype, {in_.plan.sizes.rows, heads, in_.plan.sizes.seq_len}, flat.device);
}

Float8View TapeProgram::float8(int data, int scale) const {
  const TapeBuffer& described = in_.plan.buffers[static_cast<std::size_t>(data)];
  return {view(data), view(scale).as<const float>() + (described.powers ? 0 : 1), described.scaling};
}

TensorView TapeProgram::weight(const Call& call, int parameter) const {
  const ParameterSlot& slot = call.unit.slots[static_cast<std::size_t>(parameter)];
  return readable(call.weights, slot.weight_offset, slot.stored, in_.layout.parameters[slot.parameter].description.shape(), in_.rotary.device);
}

Float8View TapeProgram::float8_weight(const Call& call, const Instruction& i) const {
  if (i.weight >= 0) return float8(i.weight, i.weight + 1);
  return {weight(call, i.parameter), in_.scales[call.unit.slots[static_cast<std::size_t>(i.parameter)].parameter]};
}

TensorView TapeProgram::weight_gradient(const Call& call, int parameter) const {
  const ParameterSlot& slot = call.unit.slots[static_cast<std::size_t>(parameter)];
  const LaidParameter& p = in_.layout.parameters[slot.parameter];
  if (!in_.own_gradients.empty()) return TensorView::contiguous(in_.own_gradients[slot.parameter], p.gradient, p.description.shape(), in_.rotary.device);
  return TensorView::contiguous(call.gradients.data() + slot.gradient_offset, in_.layout.gradient, p.description.shape(), in_.rotary.device);
}

TensorView TapeProgram::starts(const Call& call) const {
  if (!in_.plan.sizes.documents) return {};
  TensorView starts = batch_part(call, 2);
  return TensorView::contiguous(starts.data, DType::i32, {in_.plan.sizes.rows, in_.plan.sizes.seq_len}, starts.device);
}

TensorView TapeProgram::batch_part(const Call& call, std::size_t part) const {
  const auto tokens = static_cast<std::size_t>(in_.plan.sizes.tokens());
  const std::size_t needed = (in_.plan.sizes.documents ? 3 : 2) * tokens * sizeof(std::int32_t);
  if (call.batch.size() < needed) {
    throw std::invalid_argument("a batch slot of " + std::to_string(call.batch.size()) + " bytes; " + std::to_string(tokens) + " tokens and labels" +
                                (in_.plan.sizes.documents ? ", and where their documents begin," : "") + " take " + std::to_string(needed));
  }
  return readable(call.batch, part * tokens * sizeof(std::int32_t), DType::i32, {in_.plan.sizes.tokens()}, in_.rotary.device);
}

}  // namespace troupe
