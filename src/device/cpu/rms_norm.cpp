#include <cmath>

#include "src/device/cpu/arguments.hpp"
#include "src/device/cpu/cpu_kernels.hpp"
#include "src/device/cpu/parallel.hpp"
#include "src/device/cpu/vectorise.hpp"

namespace troupe::cpu {
namespace {

template <class T>
TROUPE_INLINE Wide<T> sum_of_squares(const T* x, std::int64_t count) {
  Wide<T> parts[sum_parts] = {};
  std::int64_t i = 0;
  for (; i + sum_parts <= count; i += sum_parts) {
    for (std::int64_t j = 0; j < sum_parts; ++j) parts[j] += widen(x[i + j]) * widen(x[i + j]);
  }
  for (; i < count; ++i) parts[i % sum_parts] += widen(x[i]) * widen(x[i]);
  return sum_of(parts);
}

/// Σ dy w x over one row.
template <class T>
TROUPE_INLINE Wide<T> sum_of_products(const T* dy, const T* w, const T* x, std::int64_t count) {
  Wide<T> parts[sum_parts] = {};
  std::int64_t i = 0;
  for (; i + sum_parts <= count; i += sum_parts) {
    for (std::int64_t j = 0; j < sum_parts; ++j) parts[j] += widen(dy[i + j]) * widen(w[i + j]) * widen(x[i + j]);
  }
  for (; i < count; ++i) parts[i % sum_parts] += widen(dy[i]) * widen(w[i]) * widen(x[i]);
  return sum_of(parts);
}

template <class T>
TROUPE_VECTORISED void forward_rows(const T* x, const T* w, double eps, T* y, Wide<T>* rstd, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t t = 0; t < rows; ++t, x += columns, y += columns) {
    const Wide<T> mean = sum_of_squares(x, columns) / static_cast<Wide<T>>(columns);
    const Wide<T> r = Wide<T>(1) / std::sqrt(mean + static_cast<Wide<T>>(eps));
    rstd[t] = r;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < columns; ++i) narrow(widen(x[i]) * r * widen(w[i]), y[i]);
  }
}

/// dx = rstd w dy − x rstd³ mean(dy w x)
template <class T>
TROUPE_VECTORISED void input_rows(const T* dy, const T* x, const T* w, const Wide<T>* rstd, T* dx, bool accumulate, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t t = 0; t < rows; ++t, dy += columns, x += columns, dx += columns) {
    const Wide<T> r = rstd[t];
    const Wide<T> along = sum_of_products(dy, w, x, columns) * r * r * r / static_cast<Wide<T>>(columns);
    if (accumulate) {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < columns; ++i) narrow(widen(dx[i]) + (widen(dy[i]) * widen(w[i]) * r - widen(x[i]) * along), dx[i]);
    } else {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < columns; ++i) narrow(widen(dy[i]) * widen(w[i]) * r - widen(x[i]) * along, dx[i]);
    }
  }
}

/// dw += Σ dy x rstd over all rows, in their order, for columns [first, last).
template <class T>
TROUPE_VECTORISED void weight_columns(const T* dy, const T* x, const Wide<T>* rstd, Wide<T>* dw, std::int64_t rows, std::int64_t columns, std::int64_t first,
                                      std::int64_t last) {
  for (std::int64_t t = 0; t < rows; ++t, dy += columns, x += columns) {
    const Wide<T> r = rstd[t];
#pragma GCC ivdep
    for (std::int64_t i = first; i < last; ++i) dw[i] += widen(dy[i]) * widen(x[i]) * r;
  }
}

bool same_rows(const TensorView& x, const TensorView& w, const TensorView& rstd) {
  return x.shape.rank == 2 && w.shape == Shape{x.shape[1]} && rstd.shape == Shape{x.shape[0]} && Arguments::floating(x.dtype) && w.dtype == x.dtype &&
         rstd.dtype == Arguments::wide(x.dtype);
}

}  // namespace

void CpuKernels::rms_norm(Stream&, TensorView x, TensorView w, double eps, TensorView y, TensorView rstd) {
  const Arguments arguments("rms_norm", "x, y [T,D] and w [D] of one floating type, rstd [T] float32 (float64 beside float64)",
                            {{"x", x}, {"w", w}, {"y", y}, {"rstd", rstd}});
  arguments.require(same_rows(x, w, rstd) && y.shape == x.shape && y.dtype == x.dtype);
  const std::int64_t columns = x.shape[1];
  with_floating(x.dtype, [&]<class T>(Type<T>) {
    in_parallel(x.shape[0], rows_a_thread(columns), [&](std::int64_t first, std::int64_t last) {
      forward_rows(x.as<const T>() + first * columns, w.as<const T>(), eps, y.as<T>() + first * columns, rstd.as<Wide<T>>() + first, last - first, columns);
    });
  });
}

void CpuKernels::rms_norm_backward(Stream& stream, TensorView dy, TensorView x, TensorView w, TensorView rstd, TensorView dx, bool accumulate_dx, TensorView dw,
                                   bool accumulate_dw) {
  const Arguments arguments("rms_norm_backward", "dy, x, dx [T,D] and w [D] of one floating type, rstd [T] and dw [D] float32 (float64 beside float64)",
                            {{"dy", dy}, {"x", x}, {"w", w}, {"rstd", rstd}, {"dx", dx}, {"dw", dw}});
  arguments.require(same_rows(x, w, rstd) && dy.shape == x.shape && dy.dtype == x.dtype && dx.shape == x.shape && dx.dtype == x.dtype && dw.shape == w.shape &&
                    dw.dtype == rstd.dtype);
  const std::int64_t rows = x.shape[0], columns = x.shape[1];
  if (!accumulate_dw) fill(stream, dw, 0.0);
  with_floating(x.dtype, [&]<class T>(Type<T>) {
    // First the weight's gradient: dx may overwrite dy.
    in_parallel(columns, elements_a_thread / (rows + 1) + 64, [&](std::int64_t first, std::int64_t last) {
      weight_columns(dy.as<const T>(), x.as<const T>(), rstd.as<const Wide<T>>(), dw.as<Wide<T>>(), rows, columns, first, last);
    });
    in_parallel(rows, rows_a_thread(columns), [&](std::int64_t first, std::int64_t last) {
      const std::int64_t offset = first * columns;
      input_rows(dy.as<const T>() + offset, x.as<const T>() + offset, w.as<const T>(), rstd.as<const Wide<T>>() + first, dx.as<T>() + offset, accumulate_dx,
                 last - first, columns);
    });
  });
}

}  // namespace troupe::cpu
