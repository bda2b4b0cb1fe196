#include "src/device/cpu/conversion.hpp"

#include "src/device/cpu/parallel.hpp"
#include "src/device/cpu/vectorise.hpp"

namespace troupe::cpu {
namespace {

template <class From, class To>
TROUPE_VECTORISED void convert_part(const From* from, To* to, std::int64_t count) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) narrow(widen(from[i]), to[i]);
}

template <class From, class To>
void convert_all(const From* from, To* to, std::int64_t count) {
  in_parallel(count, elements_a_thread, [&](std::int64_t first, std::int64_t last) { convert_part(from + first, to + first, last - first); });
}

TROUPE_VECTORISED void add_part(const float* product, BFloat16* out, std::int64_t count) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) narrow(widen(out[i]) + product[i], out[i]);
}

}  // namespace

void convert(const BFloat16* from, float* to, std::int64_t count) { convert_all(from, to, count); }
void convert(const BFloat16* from, double* to, std::int64_t count) { convert_all(from, to, count); }
void convert(const float* from, BFloat16* to, std::int64_t count) { convert_all(from, to, count); }
void convert(const float* from, double* to, std::int64_t count) { convert_all(from, to, count); }
void convert(const double* from, BFloat16* to, std::int64_t count) { convert_all(from, to, count); }
void convert(const double* from, float* to, std::int64_t count) { convert_all(from, to, count); }

void store_product(const float* product, BFloat16* out, std::int64_t count, bool accumulate) {
  if (!accumulate) return convert_all(product, out, count);
  in_parallel(count, elements_a_thread, [&](std::int64_t first, std::int64_t last) { add_part(product + first, out + first, last - first); });
}

}  // namespace troupe::cpu
