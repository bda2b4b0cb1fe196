#include "src/model/weight_layout.hpp"

#include <stdexcept>
#include <unordered_map>

namespace troupe {
namespace {

constexpr std::size_t alignment = 64;
constexpr std::int64_t float8_multiple = 16;  // what fp8 matrix units take, in every dimension of the three products

std::size_t aligned(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

/// Why a linear stays in high precision; empty: it does not.
std::string reason_to_skip(const ParameterDescription& p, const std::string& name, const TapeSizes& sizes, const Float8Options& float8) {
  for (const std::string& filter : float8.filter_fqns) {
    if (name.find(filter) != std::string::npos) return "filter \"" + filter + "\"";
  }
  if (!p.tied_to.empty()) return "its weight is " + p.tied_to;
  if (p.rows % float8_multiple != 0 || p.cols % float8_multiple != 0) {
    return std::to_string(p.rows) + " x " + std::to_string(p.cols) + " is not divisible by 16";
  }
  if (sizes.tokens() % float8_multiple != 0) {
    return "batch x seq = " + std::to_string(sizes.rows) + " x " + std::to_string(sizes.seq_len) + " = " + std::to_string(sizes.tokens()) +
           " is not divisible by 16";
  }
  return {};
}

/// Decides and lists.
bool select(const ParameterDescription& p, const TapeSizes& sizes, const Float8Options& float8, Float8Selection& selection) {
  if (!float8.enable || !p.linear) return false;
  constexpr std::string_view suffix = ".weight";
  const std::string name = p.name.ends_with(suffix) ? p.name.substr(0, p.name.size() - suffix.size()) : p.name;
  const std::string why = reason_to_skip(p, name, sizes, float8);
  if (!why.empty()) {
    selection.skipped.push_back({name, why});
    return false;
  }
  selection.converted.push_back(name);
  return true;
}

}  // namespace

WeightLayout lay_out_weights(const ModelDescription& model, const TapeSizes& sizes, const Float8Options& float8, std::uint32_t world) {
  WeightLayout layout{
      .world = world, .compute = sizes.compute, .gradient = sizes.compute == DType::f64 ? DType::f64 : DType::f32, .parameters = {}, .units = {}, .float8 = {}};
  std::unordered_map<std::string, std::size_t> by_name;
  for (std::size_t u = 0; u < model.units.size(); ++u) {
    UnitLayout unit;
    for (const ParameterDescription& p : model.units[u].parameters) {
      ParameterSlot slot;
      slot.fp8 = select(p, sizes, float8, layout.float8);
      slot.tied_reader = !p.tied_to.empty();
      if (slot.tied_reader) {
        const auto owner = by_name.find(p.tied_to);
        if (owner == by_name.end()) throw std::logic_error(p.name + " is tied to " + p.tied_to + ", which no earlier unit has");
        slot.parameter = owner->second;
        layout.parameters[slot.parameter].tied = true;
      } else {
        slot.parameter = layout.parameters.size();
        by_name.emplace(p.name, slot.parameter);
        layout.parameters.push_back({.description = p, .unit = u, .rows_per_rank = (p.rows + world - 1) / world, .fp8 = slot.fp8});
      }
      slot.stored = slot.fp8 && float8.all_gather ? DType::e4m3 : sizes.compute;
      slot.weight_offset = unit.weights_bytes;
      slot.gradient_offset = unit.gradients_bytes;
      const auto elements = static_cast<std::size_t>(layout.parameters[slot.parameter].rows_per_rank * world * p.cols);
      unit.weights_bytes += aligned(elements * size_of(slot.stored));
      unit.gradients_bytes += aligned(elements * size_of(layout.gradient));
      unit.slots.push_back(slot);
    }
    layout.units.push_back(std::move(unit));
  }
  return layout;
}

}  // namespace troupe
