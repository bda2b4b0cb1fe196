#include "src/model/initialise.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace troupe {
namespace {

// Wichura, Algorithm AS 241 (PPND16), Applied Statistics 37 (1988): rational approximations in three ranges, highest power first.
constexpr std::array near_top{2.5090809287301226727e+3, 3.3430575583588128105e+4, 6.7265770927008700853e+4, 4.5921953931549871457e+4,
                              1.3731693765509461125e+4, 1.9715909503065514427e+3, 1.3314166789178437745e+2, 3.3871328727963666080e+0};
constexpr std::array near_bottom{5.2264952788528545610e+3, 2.8729085735721942674e+4, 3.9307895800092710610e+4, 2.1213794301586595867e+4,
                                 5.3941960214247511077e+3, 6.8718700749205790830e+2, 4.2313330701600911252e+1, 1.0};
constexpr std::array middle_top{7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e+0,
                                3.64784832476320460504e+0, 5.76949722146069140550e+0, 4.63033784615654529590e+0, 1.42343711074968357734e+0};
constexpr std::array middle_bottom{1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
                                   6.89767334985100004550e-1, 1.67638483018380384940e+0, 2.05319162663775882187e+0, 1.0};
constexpr std::array far_top{2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2,
                             2.96560571828504891230e-1, 1.78482653991729133580e+0, 5.46378491116411436990e+0, 6.65790464350110377720e+0};
constexpr std::array far_bottom{2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
                                1.48753612908506148525e-2,  1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0};

/// As the device's vectorised loops; this file is compiled without contraction, so that every instruction set gives the same bits.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define TROUPE_CLONED __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define TROUPE_CLONED
#endif

template <std::size_t N>
[[gnu::always_inline]] inline double polynomial(const std::array<double, N>& coefficients, double x) {
  double sum = 0;
  for (const double c : coefficients) sum = sum * x + c;
  return sum;
}

constexpr double near_limit = 0.425;
/// For |q| ≤ near_limit, 85 of 100 values.
[[gnu::always_inline]] inline double inverse_normal_near(double q) {
  const double r = 0.180625 - q * q;
  return q * polynomial(near_top, r) / polynomial(near_bottom, r);
}

double inverse_normal(double p) {
  const double q = p - 0.5;
  if (std::abs(q) <= near_limit) return inverse_normal_near(q);
  const double r = std::sqrt(-std::log(q < 0 ? p : 1 - p));
  const double x = r <= 5 ? polynomial(middle_top, r - 1.6) / polynomial(middle_bottom, r - 1.6) : polynomial(far_top, r - 5) / polynomial(far_bottom, r - 5);
  return q < 0 ? -x : x;
}

double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

/// SplitMix64's finaliser.
[[gnu::always_inline]] inline std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

constexpr std::uint64_t golden = 0x9e3779b97f4a7c15ULL;

/// Of the value with this index; in (0, 1).
[[gnu::always_inline]] inline double uniform_of(std::uint64_t key, std::uint64_t index) {
  return (static_cast<double>(static_cast<std::int64_t>(mix(key + (index + 1) * golden) >> 11)) + 0.5) * 0x1p-53;
}

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

InitialValues::InitialValues(const Initialisation& rule, std::uint64_t seed, std::string_view name) : rule_(rule), key_(mix(seed + golden)) {
  for (const char c : name) key_ = mix((key_ ^ static_cast<unsigned char>(c)) + golden);
  if (rule.kind == Initialisation::Kind::normal && rule.cut > 0) {
    low_ = normal_cdf(-rule.cut / rule.std);
    width_ = normal_cdf(rule.cut / rule.std) - low_;
  }
}

float InitialValues::at(std::uint64_t index) const noexcept {
  if (rule_.kind == Initialisation::Kind::ones) return 1.0F;
  return static_cast<float>(rule_.std * inverse_normal(low_ + width_ * uniform_of(key_, index)));
}

void InitialValues::fill(std::uint64_t first, std::span<float> values) const noexcept {
  if (rule_.kind == Initialisation::Kind::ones) return std::fill(values.begin(), values.end(), 1.0F);
  std::array<double, block> middle;
  for (std::size_t done = 0; done < values.size(); done += block) {
    const std::size_t count = std::min(block, values.size() - done);
    fill_near(key_, first + done, low_, width_, rule_.std, count, middle.data(), values.data() + done);
    for (std::size_t i = 0; i < count; ++i) {
      if (!(std::abs(middle[i]) <= near_limit)) values[done + i] = at(first + done + i);
    }
  }
}

}  // namespace troupe
