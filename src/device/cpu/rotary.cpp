#include "src/device/cpu/arguments.hpp"
#include "src/device/cpu/cpu_kernels.hpp"
#include "src/device/cpu/parallel.hpp"
#include "src/device/cpu/vectorise.hpp"

namespace troupe::cpu {
namespace {

/// Tokens [first, last) of x [T, heads, 2 × pairs]; table [positions, pairs, 2].
template <class T>
TROUPE_VECTORISED void rotate(T* x, const Wide<T>* table, Wide<T> sign, std::int64_t first, std::int64_t last, std::int64_t heads, std::int64_t pairs,
                              std::int64_t positions) {
  for (std::int64_t t = first; t < last; ++t) {
    const Wide<T>* angles = table + (t % positions) * pairs * 2;
    for (std::int64_t h = 0; h < heads; ++h) {
      T* row = x + (t * heads + h) * pairs * 2;
#pragma GCC ivdep
      for (std::int64_t i = 0; i < pairs; ++i) {
        const Wide<T> a = widen(row[2 * i]), b = widen(row[2 * i + 1]);
        const Wide<T> cosine = angles[2 * i], sine = sign * angles[2 * i + 1];
        narrow(a * cosine - b * sine, row[2 * i]);
        narrow(a * sine + b * cosine, row[2 * i + 1]);
      }
    }
  }
}

}  // namespace

void CpuKernels::rotary(Stream&, TensorView x, TensorView table, bool inverse) {
  const Arguments arguments("rotary", "x [T,heads,d] floating with d even, table [S,d/2,2] float32 (float64 beside float64)", {{"x", x}, {"table", table}});
  arguments.require(x.shape.rank == 3 && table.shape.rank == 3 && x.shape[2] == 2 * table.shape[1] && table.shape[2] == 2);
  arguments.require(Arguments::floating(x.dtype) && table.dtype == Arguments::wide(x.dtype) && (table.shape[0] > 0 || x.shape[0] == 0));
  with_floating(x.dtype, [&]<class T>(Type<T>) {
    in_parallel(x.shape[0], rows_a_thread(x.shape[1] * x.shape[2]), [&](std::int64_t first, std::int64_t last) {
      rotate(x.as<T>(), table.as<const Wide<T>>(), Wide<T>(inverse ? -1 : 1), first, last, x.shape[1], table.shape[1], table.shape[0]);
    });
  });
}

}  // namespace troupe::cpu
