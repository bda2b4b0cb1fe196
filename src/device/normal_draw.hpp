#pragma once
// Normal numbers drawn by index, one function for hosts and devices: the arithmetic is fp64 and compiled without contraction on both, so they
// differ in the logarithm's last bit at most. C++17, for nvcc.
#include <cmath>
#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#define TROUPE_ON_BOTH __host__ __device__
#else
#define TROUPE_ON_BOTH
#endif

namespace troupe {

/// Value i is std · Φ⁻¹(low + width · u), where u is the uniform number of (key, i): a counter-based generator (SplitMix64's finaliser over
/// key + i · golden ratio) and the inverse of the normal distribution. A cut distribution maps u onto what lies between the cuts.
struct NormalDraw {
  std::uint64_t key = 0;
  double low = 0, width = 1;  ///< of the probabilities that are drawn from
  double std = 1;
};

inline constexpr std::uint64_t golden_ratio = 0x9e3779b97f4a7c15ULL;

/// SplitMix64's finaliser.
[[gnu::always_inline]] TROUPE_ON_BOTH inline std::uint64_t mix_bits(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

/// Of the value with this index; in (0, 1).
[[gnu::always_inline]] TROUPE_ON_BOTH inline double uniform_of(std::uint64_t key, std::uint64_t index) {
  return (static_cast<double>(static_cast<std::int64_t>(mix_bits(key + (index + 1) * golden_ratio) >> 11)) + 0.5) * 0x1p-53;
}

/// Highest power first.
template <std::size_t N>
[[gnu::always_inline]] TROUPE_ON_BOTH inline double polynomial(const double (&coefficients)[N], double x) {
  double sum = 0;
  for (std::size_t i = 0; i < N; ++i) sum = sum * x + coefficients[i];
  return sum;
}

// Wichura, Algorithm AS 241 (PPND16), Applied Statistics 37 (1988): rational approximations in three ranges.
inline constexpr double near_limit = 0.425;
/// For |q| ≤ near_limit, 85 of 100 values.
[[gnu::always_inline]] TROUPE_ON_BOTH inline double inverse_normal_near(double q) {
  constexpr double top[]{2.5090809287301226727e+3, 3.3430575583588128105e+4, 6.7265770927008700853e+4, 4.5921953931549871457e+4,
                         1.3731693765509461125e+4, 1.9715909503065514427e+3, 1.3314166789178437745e+2, 3.3871328727963666080e+0};
  constexpr double bottom[]{5.2264952788528545610e+3, 2.8729085735721942674e+4, 3.9307895800092710610e+4, 2.1213794301586595867e+4,
                            5.3941960214247511077e+3, 6.8718700749205790830e+2, 4.2313330701600911252e+1, 1.0};
  const double r = 0.180625 - q * q;
  return q * polynomial(top, r) / polynomial(bottom, r);
}

/// For p within 0.075 of 0 or 1.
TROUPE_ON_BOTH inline double inverse_normal_far(double p) {
  constexpr double middle_top[]{7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e+0,
                                3.64784832476320460504e+0, 5.76949722146069140550e+0, 4.63033784615654529590e+0, 1.42343711074968357734e+0};
  constexpr double middle_bottom[]{1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
                                   6.89767334985100004550e-1, 1.67638483018380384940e+0, 2.05319162663775882187e+0, 1.0};
  constexpr double far_top[]{2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2,
                             2.96560571828504891230e-1, 1.78482653991729133580e+0, 5.46378491116411436990e+0, 6.65790464350110377720e+0};
  constexpr double far_bottom[]{2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
                                1.48753612906508146525e-2,  1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0};
  const double q = p - 0.5;
  const double r = sqrt(-log(q < 0 ? p : 1 - p));
  const double x = r <= 5 ? polynomial(middle_top, r - 1.6) / polynomial(middle_bottom, r - 1.6) : polynomial(far_top, r - 5) / polynomial(far_bottom, r - 5);
  return q < 0 ? -x : x;
}

TROUPE_ON_BOTH inline double inverse_normal(double p) {
  const double q = p - 0.5;
  return q <= near_limit && q >= -near_limit ? inverse_normal_near(q) : inverse_normal_far(p);
}

/// One value of the draw; `index` counts from 0.
TROUPE_ON_BOTH inline float value_of(const NormalDraw& draw, std::uint64_t index) {
  return static_cast<float>(draw.std * inverse_normal(draw.low + draw.width * uniform_of(draw.key, index)));
}

}  // namespace troupe
