#include "src/model/model_description.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace troupe {
namespace {

/// One frequency under the "llama3" rule: short wavelengths stay, long ones are divided by the factor, those between are blended.
double scaled_frequency(double frequency, const RotaryScaling& s) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const auto length = static_cast<double>(s.original_length);
  if (wavelength < length / s.high_freq_factor) return frequency;
  if (wavelength > length / s.low_freq_factor) return frequency / s.factor;
  const double smooth = (length / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return (1 - smooth) * frequency / s.factor + smooth * frequency;
}

}  // namespace

std::vector<double> rotary_table(const RotarySettings& settings, std::int64_t seq_len) {
  const std::int64_t half = settings.head_dim / 2;
  std::vector<double> table;
  table.reserve(static_cast<std::size_t>(seq_len * half * 2));
  for (std::int64_t position = 0; position < seq_len; ++position) {
    for (std::int64_t i = 0; i < half; ++i) {
      double frequency = std::pow(settings.theta, -2.0 * static_cast<double>(i) / static_cast<double>(settings.head_dim));
      if (settings.scaled) frequency = scaled_frequency(frequency, settings.scaling);
      const double angle = static_cast<double>(position) * frequency;
      table.push_back(std::cos(angle));
      table.push_back(std::sin(angle));
    }
  }
  return table;
}

bool ModelDescription::ties() const noexcept {
  return std::ranges::any_of(units, [](const UnitDescription& unit) {
    return std::ranges::any_of(unit.parameters, [](const ParameterDescription& p) { return !p.tied_to.empty(); });
  });
}

std::int64_t ModelDescription::parameter_count() const noexcept {
  std::int64_t count = 0;
  for (const UnitDescription& unit : units) {
    for (const ParameterDescription& p : unit.parameters) count += p.tied_to.empty() ? p.elements() : 0;
  }
  return count;
}

double ModelDescription::flops_per_token(std::int64_t seq_len) const noexcept {
  return 6.0 * static_cast<double>(parameter_count() - vocab_size * dim) + 12.0 * static_cast<double>(layers * heads * head_dim) * static_cast<double>(seq_len);
}

double ModelDescription::causal_flops_per_token(std::int64_t seq_len) const noexcept {
  return 6.0 * static_cast<double>(parameter_count() - vocab_size * dim) +
         6.0 * static_cast<double>(layers * heads * head_dim) * static_cast<double>(seq_len + 1);
}

}  // namespace troupe
