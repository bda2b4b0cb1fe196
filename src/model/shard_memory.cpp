#include "src/model/shard_memory.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace troupe {
namespace {

constexpr std::size_t alignment = 64;
std::size_t aligned(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

std::size_t shard_bytes(const LaidParameter& p, DType dtype = DType::f32) {
  return aligned(static_cast<std::size_t>(p.rows_per_rank * p.description.cols) * size_of(dtype));
}
std::size_t gradient_bytes(const LaidParameter& p) { return shard_bytes(p, p.gradient); }

std::size_t scalar_bytes(const WeightLayout& layout) {
  std::size_t float8 = 0;
  for (const LaidParameter& p : layout.parameters) float8 += p.fp8 ? 1 : 0;
  return layout.parameters.size() * sizeof(std::int64_t) + 2 * float8 * sizeof(float);
}

struct GradientPlaces {
  std::vector<std::size_t> offsets;  ///< bytes, of each parameter
  std::size_t bytes = 0;
};

GradientPlaces places_of_all(const WeightLayout& layout) {
  GradientPlaces places;
  for (const LaidParameter& p : layout.parameters) {
    places.offsets.push_back(places.bytes);
    places.bytes += gradient_bytes(p);
  }
  return places;
}

/// Units take turns in two places, each as large as its largest unit. Not those with a parameter that another unit reads too: its gradients come from
/// both, so they stay from the one reduce to the other.
GradientPlaces places_in_turn(const WeightLayout& layout) {
  std::vector<bool> stays(layout.units.size(), false);
  std::vector<std::size_t> bytes(layout.units.size(), 0);
  for (const LaidParameter& p : layout.parameters) {
    stays[p.unit] = stays[p.unit] || p.tied;
    bytes[p.unit] += gradient_bytes(p);
  }
  std::array<std::size_t, 2> turn{};
  for (std::size_t u = 0; u < bytes.size(); ++u) turn[u % 2] = std::max(turn[u % 2], stays[u] ? 0 : bytes[u]);
  GradientPlaces places{.offsets = {}, .bytes = turn[0] + turn[1]};
  std::vector<std::size_t> next(bytes.size());
  for (std::size_t u = 0; u < bytes.size(); ++u) {
    next[u] = stays[u] ? places.bytes : u % 2 * turn[0];
    places.bytes += stays[u] ? bytes[u] : 0;
  }
  for (const LaidParameter& p : layout.parameters) {
    places.offsets.push_back(next[p.unit]);
    next[p.unit] += gradient_bytes(p);
  }
  return places;
}

}  // namespace

ShardMemory::Bytes ShardMemory::bytes_of(const WeightLayout& layout, bool sums, bool averages, bool step_in_backward) {
  Bytes bytes{.scalars = scalar_bytes(layout)};
  for (const LaidParameter& p : layout.parameters) bytes.masters += shard_bytes(p);
  bytes.moments = 2 * bytes.masters;
  bytes.averages = averages ? bytes.masters : 0;
  bytes.gradients = (step_in_backward ? places_in_turn(layout) : places_of_all(layout)).bytes;
  for (const UnitLayout& unit : layout.units) bytes.sums += sums ? unit.gradients_bytes : 0;
  return bytes;
}

std::size_t ShardMemory::gradient_bytes_of(const WeightLayout& layout, std::size_t unit) {
  std::size_t bytes = 0;
  for (const LaidParameter& p : layout.parameters) bytes += p.unit == unit ? gradient_bytes(p) : 0;
  return bytes;
}

std::size_t ShardMemory::elements_of(const WeightLayout& layout, std::size_t unit) {
  std::size_t bytes = 0;
  for (const LaidParameter& p : layout.parameters) bytes += p.unit == unit ? shard_bytes(p) : 0;
  return bytes / sizeof(float);
}

ShardMemory::ShardMemory(const WeightLayout& layout, const Options& options, Device& device) : layout_(layout), options_(options), device_(device.info().id) {
  std::size_t offset = 0;
  for (const LaidParameter& p : layout.parameters) {
    offsets_.push_back(offset);
    float8_.push_back(float8_count_);
    float8_count_ += p.fp8 ? 1 : 0;
    offset += shard_bytes(p);
  }
  for (auto* state : {&masters_, &first_, &second_}) *state = device.allocate(offset, options.placement);
  if (options.averages) averages_ = device.allocate(offset, options.placement);
  GradientPlaces places = options.step_in_backward ? places_in_turn(layout) : places_of_all(layout);
  gradient_offsets_ = std::move(places.offsets);
  gradients_ = device.allocate(places.bytes, Placement::device);  // collectives write here
  if (options.sums) {
    sum_offsets_.push_back(0);
    for (const UnitLayout& unit : layout.units) sum_offsets_.push_back(sum_offsets_.back() + unit.gradients_bytes);
    sums_ = device.allocate(sum_offsets_.back(), Placement::device);
  }
  scalars_ = device.allocate(scalar_bytes(layout), Placement::device);
}

TensorView ShardMemory::rows(const Buffer& buffer, const std::vector<std::size_t>& offsets, std::size_t parameter, DType dtype) const {
  const LaidParameter& p = layout_.parameters[parameter];
  Shape shape = p.description.shape();
  shape.size[0] = p.rows_of(options_.rank);
  return TensorView::contiguous(buffer.bytes().data() + offsets[parameter], dtype, shape, device_);
}

float* ShardMemory::gradient_with_padding(std::size_t parameter) const {
  return reinterpret_cast<float*>(gradients_->bytes().data() + gradient_offsets_[parameter]);
}

std::vector<TensorView> ShardMemory::gradients_of(std::size_t unit) const {
  std::vector<TensorView> runs;
  for (std::size_t i = 0; i < layout_.parameters.size(); ++i) {
    const LaidParameter& p = layout_.parameters[i];
    const auto elements = static_cast<std::int64_t>(gradient_bytes(p) / size_of(p.gradient));
    if (p.unit != unit || elements == 0) continue;
    if (!runs.empty() && runs.back().dtype == p.gradient) {
      runs.back() = TensorView::contiguous(runs.back().data, p.gradient, {runs.back().shape[0] + elements}, device_);
    } else {
      runs.push_back(TensorView::contiguous(gradients_->bytes().data() + gradient_offsets_[i], p.gradient, {elements}, device_));
    }
  }
  return runs;
}

std::span<std::byte> ShardMemory::sums_of(std::size_t unit) const {
  if (!sums_) return {};
  return sums_->bytes().subspan(sum_offsets_[unit], sum_offsets_[unit + 1] - sum_offsets_[unit]);
}

std::int64_t* ShardMemory::count(std::size_t parameter) const { return reinterpret_cast<std::int64_t*>(scalars_->bytes().data()) + parameter; }

float* ShardMemory::amax(std::size_t parameter) const {
  return reinterpret_cast<float*>(scalars_->bytes().data() + layout_.parameters.size() * sizeof(std::int64_t)) + float8_[parameter];
}

float* ShardMemory::scale(std::size_t parameter) const { return amax(parameter) + float8_count_; }

float* ShardMemory::scales_of(std::size_t unit) const { return amaxes_of(unit).as<float>() + float8_count_; }

TensorView ShardMemory::amaxes_of(std::size_t unit) const {
  std::size_t first = 0;
  std::int64_t count = 0;
  for (std::size_t i = 0; i < layout_.parameters.size(); ++i) {
    const LaidParameter& p = layout_.parameters[i];
    if (p.unit != unit || !p.fp8) continue;
    if (count++ == 0) first = i;
  }
  return TensorView::contiguous(amax(first), DType::f32, {count}, device_);
}

StateTensor ShardMemory::part(std::size_t parameter, const std::string& prefix, const TensorView& view, bool model) const {
  const LaidParameter& p = layout_.parameters[parameter];
  return {.name = prefix + p.description.name,
          .global_shape = p.description.shape(),
          .first_row = p.first_row(options_.rank),
          .rows = p.rows_of(options_.rank),
          .view = view,
          .model = model};
}

StateTensors ShardMemory::state() const {
  StateTensors all;
  for (std::size_t i = 0; i < layout_.parameters.size(); ++i) {
    all.push_back(part(i, "", master(i), true));
    all.push_back(part(i, "optimizer.exp_avg.", first_moment(i), false));
    all.push_back(part(i, "optimizer.exp_avg_sq.", second_moment(i), false));
    if (averages_) all.push_back(part(i, std::string(ema_prefix), average(i), false));
    all.push_back({.name = "optimizer.step." + layout_.parameters[i].description.name,
                   .global_shape = {1},
                   .first_row = 0,
                   .rows = 1,
                   .view = TensorView::contiguous(count(i), DType::i64, {1}, device_),
                   .model = false,
                   .replicated = true});
  }
  return all;
}

StateTensors ShardMemory::averages() const {
  StateTensors all;
  for (std::size_t i = 0; averages_ && i < layout_.parameters.size(); ++i) all.push_back(part(i, "", average(i), true));
  return all;
}

StateTensors ShardMemory::gradients() const {
  StateTensors all;
  for (std::size_t i = 0; !options_.step_in_backward && i < layout_.parameters.size(); ++i) all.push_back(part(i, "", gradient(i), false));
  return all;
}

std::size_t ShardMemory::bytes() const {
  return (averages_ ? 4 : 3) * masters_->bytes().size() + gradients_->bytes().size() + (sums_ ? sums_->bytes().size() : 0) + scalars_->bytes().size();
}

std::size_t ShardMemory::device_bytes() const {
  return bytes() - (options_.placement == Placement::device ? 0 : (averages_ ? 4 : 3) * masters_->bytes().size());
}

}  // namespace troupe
