#include "src/collectives/reduce.hpp"

#include <algorithm>
#include <array>

namespace troupe {
namespace {

struct Sum {
  template <class T>
  T operator()(T a, T b) const noexcept {
    return a + b;
  }
};
struct Max {
  template <class T>
  T operator()(T a, T b) const noexcept {
    return b > a || b != b ? b : a;
  }  // a NaN in a stays: both comparisons are false
};

// `out` may be one of the sources, never shifted against it: `ivdep` says that no step depends on an earlier one.

template <class T, class Combine>
void combine_pair(const T* a, const T* b, T* out, std::size_t count, bool accumulate, Combine combine) noexcept {
  if (accumulate) {
#pragma GCC ivdep
    for (std::size_t i = 0; i < count; ++i) out[i] += combine(a[i], b[i]);
  } else {
#pragma GCC ivdep
    for (std::size_t i = 0; i < count; ++i) out[i] = combine(a[i], b[i]);
  }
}

/// Blocks of partial results stay in the first-level cache, so `out` is written once whatever the number of sources.
template <class T, class Combine>
void combine_in_order(std::span<const T* const> sources, T* out, std::size_t count, bool accumulate, Combine combine) noexcept {
  constexpr std::size_t block = 4096 / sizeof(T);
  std::array<T, block> partial;
  for (std::size_t first = 0; first < count; first += block) {
    const std::size_t n = std::min(block, count - first);
    const T* so_far = sources[0] + first;
    for (std::size_t s = 1; s + 1 < sources.size(); ++s) {
      combine_pair(so_far, sources[s] + first, partial.data(), n, false, combine);
      so_far = partial.data();
    }
    T* const to = out + first;
    if (sources.size() > 1) {
      combine_pair(so_far, sources.back() + first, to, n, accumulate, combine);
    } else if (accumulate) {
#pragma GCC ivdep
      for (std::size_t i = 0; i < n; ++i) to[i] += so_far[i];
    } else if (so_far != to) {
      std::copy_n(so_far, n, to);
    }
  }
}

}  // namespace

void sum_in_order(std::span<const float* const> sources, float* out, std::size_t count, bool accumulate) noexcept {
  combine_in_order(sources, out, count, accumulate, Sum{});
}
void sum_in_order(std::span<const double* const> sources, double* out, std::size_t count) noexcept { combine_in_order(sources, out, count, false, Sum{}); }
void max_in_order(std::span<const float* const> sources, float* out, std::size_t count) noexcept { combine_in_order(sources, out, count, false, Max{}); }
void max_in_order(std::span<const double* const> sources, double* out, std::size_t count) noexcept { combine_in_order(sources, out, count, false, Max{}); }

}  // namespace troupe
