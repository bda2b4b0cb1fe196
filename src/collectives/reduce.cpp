#include "src/collectives/reduce.hpp"

#include <algorithm>
#include <array>

namespace troupe {
namespace {

struct Sum {
  template <class T>
  T operator()(T a, T b) const noexcept { return a + b; }
};
struct Max {
  template <class T>
  T operator()(T a, T b) const noexcept { return b > a || b != b ? b : a; }  // a NaN in a stays: both comparisons are false
};

/// Blocks stay in the first-level cache, so `out` is written once whatever the number of sources.
template <class T, class Combine>
void combine_in_order(std::span<const T* const> sources, T* out, std::size_t count, bool accumulate, Combine combine) noexcept {
  constexpr std::size_t block = 2048 / sizeof(T);
  std::array<T, block> partial;
  for (std::size_t first = 0; first < count; first += block) {
    const std::size_t n = std::min(block, count - first);
    std::copy_n(sources[0] + first, n, partial.begin());
    for (std::size_t s = 1; s < sources.size(); ++s) {
      const T* source = sources[s] + first;
      for (std::size_t i = 0; i < n; ++i) partial[i] = combine(partial[i], source[i]);
    }
    T* to = out + first;
    if (accumulate) {
      for (std::size_t i = 0; i < n; ++i) to[i] += partial[i];
    } else {
      std::copy_n(partial.begin(), n, to);
    }
  }
}

}  // namespace

void sum_in_order(std::span<const float* const> sources, float* out, std::size_t count, bool accumulate) noexcept {
  combine_in_order(sources, out, count, accumulate, Sum{});
}
void sum_in_order(std::span<const double* const> sources, double* out, std::size_t count) noexcept {
  combine_in_order(sources, out, count, false, Sum{});
}
void max_in_order(std::span<const float* const> sources, float* out, std::size_t count) noexcept {
  combine_in_order(sources, out, count, false, Max{});
}
void max_in_order(std::span<const double* const> sources, double* out, std::size_t count) noexcept {
  combine_in_order(sources, out, count, false, Max{});
}

}  // namespace troupe
