#pragma once
#include <cstdint>
#include <utility>

#include "src/device/cpu/bfloat16.hpp"
#include "src/device/tensor_view.hpp"

/// Marks a function with plain loops that is compiled for several instruction sets; the best one is chosen when the program is
/// loaded. Sanitizers cannot run in that early choice, so their builds have one version.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define TROUPE_VECTORISED __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define TROUPE_VECTORISED
#endif
/// For what such a loop calls: it must become part of the loop.
#define TROUPE_INLINE [[gnu::always_inline]] inline

namespace troupe::cpu {

/// Sums are kept in this many parts, added up in one order, so that they vectorise and yet repeat bit for bit.
inline constexpr std::int64_t sum_parts = 16;

template <class T>
TROUPE_INLINE T sum_of(const T (&parts)[sum_parts]) {
  T total = 0;
  for (std::int64_t i = 0; i < sum_parts; ++i) total += parts[i];
  return total;
}

template <class T>
struct Type {
  using type = T;
};

/// Calls `f` with Type<float>, Type<BFloat16> or Type<double>; the caller has checked Arguments::floating(dtype).
template <class F>
decltype(auto) with_floating(DType dtype, F&& f) {
  switch (dtype) {
    case DType::bf16: return std::forward<F>(f)(Type<BFloat16>{});
    case DType::f64: return std::forward<F>(f)(Type<double>{});
    default: return std::forward<F>(f)(Type<float>{});
  }
}

}  // namespace troupe::cpu
