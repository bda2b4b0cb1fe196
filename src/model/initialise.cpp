#include "src/model/initialise.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace troupe {
namespace {

/// As the device's vectorised loops; this file is compiled without contraction, so that every instruction set gives the same bits.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define TROUPE_CLONED __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define TROUPE_CLONED
#endif

double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

constexpr std::size_t block = 256;

/// A block's values as if all were near the middle; probabilities, less a half, say which were not.
TROUPE_CLONED void fill_near(std::uint64_t key, std::uint64_t first, double low, double width, double std, std::size_t count, double* middle, float* out) {
  for (std::size_t i = 0; i < count; ++i) {
    const double q = low + width * uniform_of(key, first + i) - 0.5;
    middle[i] = q;
    out[i] = static_cast<float>(std * inverse_normal_near(q));
  }
}

}  // namespace

InitialValues::InitialValues(const Initialisation& rule, std::uint64_t seed, std::string_view name)
    : rule_(rule), draw_{.key = mix_bits(seed + golden_ratio), .std = rule.std} {
  for (const char c : name) draw_.key = mix_bits((draw_.key ^ static_cast<unsigned char>(c)) + golden_ratio);
  if (rule.kind == Initialisation::Kind::normal && rule.cut > 0) {
    draw_.low = normal_cdf(-rule.cut / rule.std);
    draw_.width = normal_cdf(rule.cut / rule.std) - draw_.low;
  }
}

float InitialValues::at(std::uint64_t index) const noexcept {
  if (rule_.kind == Initialisation::Kind::ones) return 1.0F;
  return value_of(draw_, index);
}

void InitialValues::fill(std::uint64_t first, std::span<float> values) const noexcept {
  if (rule_.kind == Initialisation::Kind::ones) return std::fill(values.begin(), values.end(), 1.0F);
  std::array<double, block> middle;
  for (std::size_t done = 0; done < values.size(); done += block) {
    const std::size_t count = std::min(block, values.size() - done);
    fill_near(draw_.key, first + done, draw_.low, draw_.width, draw_.std, count, middle.data(), values.data() + done);
    for (std::size_t i = 0; i < count; ++i) {
      if (!(std::abs(middle[i]) <= near_limit)) values[done + i] = at(first + done + i);
    }
  }
}

}  // namespace troupe
