#include "src/model/weight_layout.hpp"

#include <stdexcept>
#include <unordered_map>

namespace troupe {
namespace {

constexpr std::size_t alignment = 64;
constexpr std::int64_t float8_multiple = 16;  // what fp8 matrix units take, in every dimension of the three products

std::size_t aligned(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

/// Below these sizes fp8 does not pay. Source: torchao `_auto_filter_for_recipe`.
bool too_small(Float8Recipe recipe, std::int64_t n, std::int64_t k) {
  if (recipe == Float8Recipe::tensorwise) return k <= 4096 && n <= 1024;
  return n <= 2048 || k <= 1024 || (n <= 4096 && k <= 2048);
}

/// Why a linear stays in high precision; empty: it does not.
std::string reason_to_skip(const ParameterDescription& p, const std::string& name, const TapeSizes& sizes, const Float8Options& float8) {
  bool automatic = false;
  for (const std::string& filter : float8.filter_fqns) {
    automatic = automatic || filter == float8_auto_filter;
    if (filter != float8_auto_filter && name.find(filter) != std::string::npos) return "filter \"" + filter + "\"";
  }
  if (!p.tied_to.empty()) return "its weight is " + p.tied_to;
  if (p.rows % float8_multiple != 0 || p.cols % float8_multiple != 0) {
    return std::to_string(p.rows) + " x " + std::to_string(p.cols) + " is not divisible by 16";
  }
  if (sizes.tokens() % float8_multiple != 0) {
    return "batch x seq = " + std::to_string(sizes.rows) + " x " + std::to_string(sizes.seq_len) + " = " + std::to_string(sizes.tokens()) +
           " is not divisible by 16";
  }
  if (automatic && too_small(float8.recipe, p.rows, p.cols)) {
    return std::to_string(p.rows) + " x " + std::to_string(p.cols) + " is too small to gain (" + std::string(float8_auto_filter) + ")";
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

std::string_view name_of(Float8Recipe recipe) noexcept {
  switch (recipe) {
    case Float8Recipe::tensorwise: return "tensorwise";
    case Float8Recipe::rowwise: return "rowwise";
    case Float8Recipe::rowwise_with_gw_hp: return "rowwise_with_gw_hp";
  }
  return "unknown";
}

Float8Recipe float8_recipe(const Float8Settings& settings) {
  for (const Float8Recipe recipe : {Float8Recipe::rowwise, Float8Recipe::rowwise_with_gw_hp}) {
    if (settings.recipe_name == name_of(recipe)) return recipe;
  }
  return Float8Recipe::tensorwise;
}

WeightLayout lay_out_weights(const ModelDescription& model, const TapeSizes& sizes, const Float8Options& float8, std::uint32_t world) {
  WeightLayout layout{.world = world,
                      .compute = sizes.compute,
                      .gradient = sizes.compute == DType::f64 ? DType::f64 : DType::f32,
                      .parameters = {},
                      .units = {},
                      .float8 = {},
                      .recipe = float8.recipe};
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
      slot.stored = slot.fp8 && float8.gathers_codes() ? DType::e4m3 : sizes.compute;
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
