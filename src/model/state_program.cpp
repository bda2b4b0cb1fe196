#include "src/model/state_program.hpp"

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>

namespace troupe {
namespace {

void require_slot(const char* what, Unit unit, std::size_t found, std::size_t needed) {
  if (found < needed) {
    throw std::invalid_argument(std::string(what) + " slot of unit " + std::to_string(unit.value()) + " has " + std::to_string(found) + " bytes; it takes " +
                                std::to_string(needed));
  }
}

}  // namespace

/// Whether a parameter of the unit's own is gathered as codes.
bool StateProgram::travels_in_fp8(Unit unit) const {
  const std::vector<ParameterSlot>& slots = in_.layout.units.at(unit.value()).slots;
  return std::any_of(slots.begin(), slots.end(), [](const ParameterSlot& slot) { return slot.stored == DType::e4m3 && !slot.tied_reader; });
}

void StateProgram::find_amaxes(Stream& stream, Unit unit) {
  const TensorView amaxes = in_.memory.amaxes_of(unit.value());
  if (amaxes.shape.elements() == 0) return;
  in_.kernels.fill(stream, amaxes, 0.0);
  for (std::size_t i = 0; i < in_.layout.parameters.size(); ++i) {
    const LaidParameter& p = in_.layout.parameters[i];
    if (p.unit == unit.value() && p.fp8 && p.rows_of(in_.memory.rank()) > 0) in_.kernels.amax(stream, in_.memory.master(i), in_.memory.amax(i), true);
  }
}

void StateProgram::scales_from_amaxes(Stream& stream, Unit unit) {
  const TensorView amaxes = in_.memory.amaxes_of(unit.value());
  const auto count = static_cast<std::size_t>(amaxes.shape.elements());
  float* const scales = in_.memory.scales_of(unit.value());
  if (count == 0) return;
  if (fused_ != nullptr) return fused_->scales_from_amaxes(stream, amaxes.as<const float>(), DType::e4m3, scales, count);
  for (std::size_t i = 0; i < count; ++i) in_.kernels.scale_from_amax(stream, amaxes.as<const float>() + i, DType::e4m3, scales + i);
}

void StateProgram::scales(Stream& stream, Unit unit, Communicator& dp_shard) {
  if (!travels_in_fp8(unit)) return;
  if (amaxes_known_[unit.value()] == 0) find_amaxes(stream, unit);
  dp_shard.all_reduce(stream, in_.memory.amaxes_of(unit.value()), Reduction::max);
  scales_from_amaxes(stream, unit);
}

std::size_t StateProgram::part_bytes(const ParameterSlot& slot) const {
  const LaidParameter& p = in_.layout.parameters[slot.parameter];
  return static_cast<std::size_t>(p.rows_per_rank * p.description.cols) * size_of(slot.stored);
}

void StateProgram::place_own_rows(Stream& stream, Unit unit, std::span<std::byte> weights) {
  const UnitLayout& layout = in_.layout.units.at(unit.value());
  require_slot("weights", unit, weights.size(), layout.weights_bytes);
  copies_.clear();
  for (const ParameterSlot& slot : layout.slots) {
    const TensorView master = in_.memory.master(slot.parameter);
    std::byte* own = weights.data() + slot.weight_offset + in_.memory.rank() * part_bytes(slot);
    const std::size_t valid = static_cast<std::size_t>(master.shape.elements()) * size_of(slot.stored);
    if (valid < part_bytes(slot)) {  // rows of padding, which nobody reads, have one value on all ranks
      in_.kernels.fill(stream, TensorView::contiguous(own + valid, DType::u8, {static_cast<std::int64_t>(part_bytes(slot) - valid)}, in_.device), 0.0);
    }
    if (valid == 0) continue;
    const TensorView place = TensorView::contiguous(own, slot.stored, master.shape, in_.device);
    copies_.push_back({master, place, slot.stored == DType::e4m3 ? in_.memory.scale(slot.parameter) : nullptr});
  }
  Float8Counts* const counts = &in_.totals->sums.weights;
  if (fused_ != nullptr) return fused_->copy_shards(stream, copies_, counts);
  for (const ShardCopy& c : copies_) {
    if (c.scale != nullptr) {
      in_.kernels.quantize(stream, c.from, c.scale, c.to, counts);
    } else {
      in_.kernels.cast(stream, c.from, c.to);
    }
  }
}

void StateProgram::gather(Stream& stream, Unit unit, std::span<std::byte> weights, Communicator& dp_shard) {
  place_own_rows(stream, unit, weights);
  gather_.clear();
  for (const ParameterSlot& slot : in_.layout.units.at(unit.value()).slots) {
    gather_.push_back({weights.data() + slot.weight_offset, part_bytes(slot)});
    gathered_ += part_bytes(slot) * (in_.layout.world - 1);
  }
  dp_shard.all_gather(stream, gather_);
}

void StateProgram::add_to_sums(Stream& stream, bool first, Unit unit, std::span<std::byte> gradients) const {
  const UnitLayout& layout = in_.layout.units.at(unit.value());
  require_slot("gradients", unit, gradients.size(), layout.gradients_bytes);
  const auto whole = [&](std::span<std::byte> bytes) {
    return TensorView::contiguous(bytes.data(), DType::f32, {static_cast<std::int64_t>(layout.gradients_bytes / sizeof(float))}, in_.device);
  };
  const TensorView sums = whole(in_.memory.sums_of(unit.value())), fresh = whole(gradients);
  if (first) return in_.kernels.cast(stream, fresh, sums);
  in_.kernels.add(stream, sums, fresh, sums);
}

void StateProgram::accumulate(Stream& stream, Micro micro, Unit unit, std::span<std::byte> gradients) {
  add_to_sums(stream, micro.value() == 0, unit, gradients);
}

void StateProgram::reduce(Stream& stream, Micro micro, Unit unit, std::span<std::byte> gradients, Communicator& dp_shard) {
  const UnitLayout& layout = in_.layout.units.at(unit.value());
  require_slot("gradients", unit, gradients.size(), layout.gradients_bytes);
  const std::span<std::byte> sums = in_.memory.sums_of(unit.value());
  if (!sums.empty()) {  // this is the last micro-batch, and what is reduced are all of them
    add_to_sums(stream, false, unit, gradients);
    gradients = sums;
  }
  reduce_.clear();
  for (const ParameterSlot& slot : layout.slots) {
    const LaidParameter& p = in_.layout.parameters[slot.parameter];
    const auto count = static_cast<std::size_t>(p.rows_per_rank * p.description.cols);
    // A tied parameter gets a gradient from two units; in backward the reader (the head) comes before the owner.
    const bool first = (micro.value() == 0 || !sums.empty()) && !(p.tied && !slot.tied_reader);
    reduce_.push_back(
        {reinterpret_cast<const float*>(gradients.data() + slot.gradient_offset), in_.memory.gradient_with_padding(slot.parameter), count, !first});
    reduced_ += count * sizeof(float) * (in_.layout.world - 1);
  }
  if (!in_.in_place) dp_shard.reduce_scatter(stream, reduce_);
  const bool whole = !sums.empty() || micro.value() + 1 == in_.micro_batches;
  if (whole && !in_.replicated) add_to_norm(stream, unit);
}

/// Σ grad² of the shards that the unit owns, behind the collective that makes them whole: all but the last unit's are hidden under backward.
/// A step begins with the last unit, which forgets what a broken step may have left.
void StateProgram::add_to_norm(Stream& stream, Unit unit) const {
  double& square = in_.totals->sums.grad_square;
  if (unit.value() + 1 == in_.layout.units.size()) in_.kernels.fill(stream, TensorView::contiguous(&square, DType::f64, {1}, in_.device), 0.0);
  if (in_.unit_verdicts != nullptr) {  // between the parameters lies what is left of the unit that had the place before
    for (std::size_t i = 0; in_.counts_in_norm && i < in_.layout.parameters.size(); ++i) {
      const LaidParameter& p = in_.layout.parameters[i];
      if (p.unit == unit.value() && p.rows_of(in_.memory.rank()) > 0) in_.kernels.sum_squares(stream, in_.memory.gradient(i), &square);
    }
    return;
  }
  if (!in_.counts_in_norm) return;
  for (const TensorView& shards : in_.memory.gradients_of(unit.value())) in_.kernels.sum_squares(stream, shards, &square);  // with padding, which is zero
}

void StateProgram::all_reduce(Stream& stream, Unit unit, Communicator& dp_replicate) {
  const std::vector<TensorView> runs = in_.memory.gradients_of(unit.value());
  if (runs.empty()) return;
  for (const TensorView& shards : runs) {
    dp_replicate.all_reduce(stream, shards, Reduction::sum);
    reduced_ += 2 * shards.bytes() * (dp_replicate.size() - 1) / dp_replicate.size();  // a reduce-scatter and an all-gather
  }
  add_to_norm(stream, unit);
}

void StateProgram::unit_verdict(Stream& stream, EpochId epoch, Step step, Unit unit, Communicator& world) {
  VerdictSums& sums = in_.totals->sums;
  const double tag = verdict_tag(epoch.value(), step.value());
  const auto doubles = [&](double& first, std::int64_t count) { return TensorView::contiguous(&first, DType::f64, {count}, in_.device); };
  // The squares are of all units down to this one, so what is not finite there is not finite below. Losses and tokens are the step's: the last forward is
  // behind all of this. What fp8 casts count goes on meanwhile, and stays out.
  static_assert(offsetof(VerdictSums, bad) == 3 * sizeof(double) && offsetof(VerdictSums, tag) == 4 * sizeof(double));
  in_.kernels.cast(stream, doubles(sums.grad_square, 4), doubles(in_.unit_sums->grad_square, 4));
  in_.kernels.fill(stream, doubles(in_.unit_sums->tag, 1), tag);
  world.all_reduce(stream, doubles(in_.unit_sums->grad_square, VerdictSums::count), Reduction::sum);
  in_.kernels.decide(stream, in_.unit_sums, world.size(), tag, in_.nominal_tokens, in_.max_norm, in_.halt, in_.unit_verdicts + unit.value());
}

void StateProgram::verdict(Stream& stream, EpochId epoch, Step step, Communicator& world) {
  VerdictSums& sums = in_.totals->sums;
  const double tag = verdict_tag(epoch.value(), step.value());
  const auto scalar = [&](double& value) { return TensorView::contiguous(&value, DType::f64, {1}, in_.device); };
  in_.kernels.fill(stream, scalar(sums.tag), tag);
  const TensorView all = TensorView::contiguous(&sums, DType::f64, {VerdictSums::count}, in_.device);
  static_assert(offsetof(VerdictSums, tokens) == offsetof(VerdictSums, loss) + sizeof(double));
  static_assert(offsetof(StepTotals, own_tokens) == offsetof(StepTotals, own_loss) + sizeof(double));
  in_.kernels.cast(stream, TensorView::contiguous(&sums.loss, DType::f64, {2}, in_.device),
                   TensorView::contiguous(&in_.totals->own_loss, DType::f64, {2}, in_.device));
  world.all_reduce(stream, all, Reduction::sum);
  in_.kernels.decide(stream, &sums, world.size(), tag, in_.nominal_tokens, in_.max_norm, in_.halt, &in_.totals->verdict);
  if (in_.marks != nullptr) {
    const auto doubles = [this](LossSum* first) {
      return TensorView::contiguous(first, DType::f64, {2 * static_cast<std::int64_t>(in_.sources.marks())}, in_.device);
    };
    in_.kernels.cast(stream, doubles(in_.marks), doubles(in_.told_marks));
  }
  decided_ = step;
  const auto whole = [&](StepTotals* totals) { return TensorView::contiguous(totals, DType::u8, {sizeof(StepTotals)}, in_.device); };
  in_.kernels.cast(stream, whole(in_.totals), whole(in_.told));
  in_.kernels.fill(stream, all, 0.0);
  numbers_.bytes_gathered = gathered_;
  numbers_.bytes_reduced = reduced_;
  gathered_ = reduced_ = 0;
}

void StateProgram::evaluate(Stream& stream, Communicator& world) {
  VerdictSums& sums = in_.evaluation->sums;
  static_assert(offsetof(VerdictSums, tokens) == offsetof(VerdictSums, loss) + sizeof(double));
  static_assert(offsetof(LossSum, tokens) == offsetof(LossSum, loss) + sizeof(double));
  const auto doubles = [&](void* first, std::int64_t count) { return TensorView::contiguous(first, DType::f64, {count}, in_.device); };
  world.all_reduce(stream, doubles(&sums.loss, 2), Reduction::sum);
  in_.kernels.cast(stream, doubles(&sums.loss, 2), doubles(in_.evaluated, 2));
  in_.kernels.fill(stream, doubles(&sums, VerdictSums::count), 0.0);
  // The gathers counted as those of a step; the next step's have not begun.
  in_.kernels.fill(stream, doubles(&in_.totals->sums.weights, sizeof(in_.totals->sums.weights) / sizeof(double)), 0.0);
  gathered_ = 0;
}

void StateProgram::optimize(Stream& stream, Step, Unit unit, double learning_rate) {
  numbers_.learning_rate = learning_rate;
  const Verdict* const verdict = in_.unit_verdicts != nullptr && unit.value() > 0 ? in_.unit_verdicts + unit.value() : &in_.totals->verdict;
  const bool finds_amaxes = fused_ != nullptr && travels_in_fp8(unit);
  adamw_.clear();
  for (const ParameterSlot& slot : in_.layout.units.at(unit.value()).slots) {
    if (slot.tied_reader) continue;
    const std::size_t i = slot.parameter;
    adamw_.push_back({.parameter = in_.memory.master(i),
                      .gradient = in_.memory.gradient(i),
                      .first = in_.memory.first_moment(i),
                      .second = in_.memory.second_moment(i),
                      .count = in_.memory.count(i),
                      .step = in_.optimizer[i].at(learning_rate),
                      .amax = finds_amaxes && in_.layout.parameters[i].fp8 ? in_.memory.amax(i) : nullptr});
  }
  if (fused_ != nullptr) {
    fused_->adamw_all(stream, adamw_, verdict);
  } else {
    for (const AdamWShard& s : adamw_) in_.kernels.adamw(stream, s.parameter, s.gradient, s.first, s.second, s.count, s.step, verdict);
  }
  for (const ParameterSlot& slot : in_.layout.units.at(unit.value()).slots) {
    if (slot.tied_reader || in_.ema_decay <= 0) continue;
    in_.kernels.average(stream, in_.memory.master(slot.parameter), in_.memory.average(slot.parameter), in_.ema_decay, verdict);
  }
  // Where nothing was committed, neither masters nor amaxes changed.
  amaxes_known_[unit.value()] = finds_amaxes ? 1 : 0;
}

/// Each mark is the sum up to and with its row, in the order in which the micro-batches ran; behind a loss that is not finite no difference is.
std::vector<LossSum> StateProgram::source_sums() const {
  if (in_.marks == nullptr) return {};
  std::vector<LossSum> sums(in_.sources.count);
  LossSum before;
  const LossSum* upto = in_.told_marks;
  for (std::uint32_t micro = 0; micro < in_.sources.micro_batches; ++micro)
    for (const auto source : in_.sources.of(decided_, Micro{micro})) {
      if (source) {
        sums.at(*source).loss += upto->loss - before.loss;
        sums.at(*source).tokens += upto->tokens - before.tokens;
      }
      before = *upto++;
    }
  return sums;
}

StepNumbers StateProgram::numbers() const {
  StepNumbers numbers = numbers_;
  numbers.verdict = in_.told->verdict;
  numbers.own_mean_loss = in_.told->own_tokens > 0 ? in_.told->own_loss / in_.told->own_tokens : 0;
  if (in_.evaluated != nullptr && in_.evaluated->tokens > 0) {
    numbers.evaluation_tokens = in_.evaluated->tokens;
    numbers.evaluation_loss = in_.evaluated->loss / in_.evaluated->tokens;
  }
  numbers.sources = source_sums();
  return numbers;
}

}  // namespace troupe
