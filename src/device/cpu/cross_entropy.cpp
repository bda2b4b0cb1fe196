#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "src/device/cpu/arguments.hpp"
#include "src/device/cpu/cpu_kernels.hpp"
#include "src/device/cpu/exponential.hpp"
#include "src/device/cpu/vectorise.hpp"

namespace troupe::cpu {
namespace {

template <class T>
TROUPE_INLINE Wide<T> largest(const T* row, std::int64_t columns) {
  Wide<T> parts[sum_parts];
  for (Wide<T>& part : parts) part = -std::numeric_limits<Wide<T>>::infinity();
  std::int64_t i = 0;
  for (; i + sum_parts <= columns; i += sum_parts) {
    for (std::int64_t j = 0; j < sum_parts; ++j) parts[j] = widen(row[i + j]) > parts[j] ? widen(row[i + j]) : parts[j];
  }
  for (; i < columns; ++i) parts[i % sum_parts] = widen(row[i]) > parts[i % sum_parts] ? widen(row[i]) : parts[i % sum_parts];
  Wide<T> result = parts[0];
  for (std::int64_t j = 1; j < sum_parts; ++j) result = parts[j] > result ? parts[j] : result;
  return result;
}

/// powers = exp(row − top); returns their sum.
template <class T>
TROUPE_INLINE Wide<T> exponentials(const T* row, Wide<T> top, Wide<T>* powers, std::int64_t columns) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < columns; ++i) powers[i] = exponential(widen(row[i]) - top);
  Wide<T> parts[sum_parts] = {};
  std::int64_t i = 0;
  for (; i + sum_parts <= columns; i += sum_parts) {
    for (std::int64_t j = 0; j < sum_parts; ++j) parts[j] += powers[i + j];
  }
  for (; i < columns; ++i) parts[i % sum_parts] += powers[i];
  return sum_of(parts);
}

/// Overwrites one row with its gradient; returns −log p of the label.
template <class T>
TROUPE_VECTORISED double row_loss(T* row, std::int64_t label, Wide<T> grad_scale, Wide<T>* powers, std::int64_t columns) {
  const Wide<T> top = largest(row, columns);
  const Wide<T> sum = exponentials(row, top, powers, columns);
  const double loss = static_cast<double>(std::log(sum)) + (static_cast<double>(top) - static_cast<double>(widen(row[label])));
  const Wide<T> factor = grad_scale / sum;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < columns; ++i) narrow(powers[i] * factor, row[i]);
  narrow(powers[label] * factor - grad_scale, row[label]);
  return loss;
}

}  // namespace

void CpuKernels::cross_entropy(Stream& stream, TensorView logits, TensorView labels, double grad_scale, VerdictSums* sums) {
  const Arguments arguments("cross_entropy", "logits [T,V] floating, labels [T] int32", {{"logits", logits}, {"labels", labels}});
  arguments.require(logits.shape.rank == 2 && labels.shape == Shape{logits.shape[0]} && labels.dtype == DType::i32 && Arguments::floating(logits.dtype));
  const std::int64_t columns = logits.shape[1];
  const auto* targets = labels.as<const std::int32_t>();
  with_floating(logits.dtype, [&]<class T>(Type<T>) {
    auto* powers = scratch_.mine().take<Wide<T>>(Scratch::Use::row, columns);
    for (std::int64_t t = 0; t < logits.shape[0]; ++t) {
      if (targets[t] < 0) {
        fill(stream, logits.rows(t, 1), 0.0);
        continue;
      }
      if (targets[t] >= columns) {
        throw std::out_of_range("cross_entropy: label " + std::to_string(targets[t]) + " at position " + std::to_string(t) + " is outside the vocabulary of " +
                                std::to_string(columns));
      }
      const double loss = row_loss(logits.as<T>() + t * columns, targets[t], static_cast<Wide<T>>(grad_scale), powers, columns);
      sums->loss += loss;
      sums->tokens += 1;
      if (!std::isfinite(loss)) sums->bad += 1;
    }
  });
}

}  // namespace troupe::cpu
