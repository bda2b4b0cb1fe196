#include "src/device/cpu/attention_reference.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "src/device/cpu/exponential.hpp"
#include "src/device/cpu/parallel.hpp"
#include "src/device/cpu/vectorise.hpp"

namespace troupe::cpu {
namespace {

/// Extents and the strides between tokens of one [B, S, heads, d] layout.
struct Layout {
  std::int64_t batch, sequence, heads, kv_heads, width;
  [[nodiscard]] std::int64_t query(std::int64_t b, std::int64_t s, std::int64_t h) const { return ((b * sequence + s) * heads + h) * width; }
  [[nodiscard]] std::int64_t key(std::int64_t b, std::int64_t s, std::int64_t h) const {
    return ((b * sequence + s) * kv_heads + h / (heads / kv_heads)) * width;
  }
};

/// [S] of one sequence; null: all keys from 0 on are seen.
std::int64_t first_key(const std::int32_t* starts, std::int64_t query) { return starts == nullptr ? 0 : starts[query]; }
const std::int32_t* starts_of(const TensorView& starts, const Layout& at, std::int64_t b) {
  return starts.data == nullptr ? nullptr : starts.as<const std::int32_t>() + b * at.sequence;
}

template <class T>
TROUPE_INLINE Wide<T> dot(const T* a, const T* b, std::int64_t count) {
  Wide<T> parts[sum_parts] = {};
  std::int64_t i = 0;
  for (; i + sum_parts <= count; i += sum_parts) {
    for (std::int64_t j = 0; j < sum_parts; ++j) parts[j] += widen(a[i + j]) * widen(b[i + j]);
  }
  for (; i < count; ++i) parts[i % sum_parts] += widen(a[i]) * widen(b[i]);
  return sum_of(parts);
}

template <class T>
TROUPE_VECTORISED void forward_head(const T* q, const T* k, const T* v, Wide<T> scale, T* out, Wide<T>* lse, const Layout& at, std::int64_t b, std::int64_t h,
                                    const std::int32_t* starts, Wide<T>* scores, Wide<T>* row) {
  for (std::int64_t i = 0; i < at.sequence; ++i) {
    const std::int64_t begin = first_key(starts, i);
    Wide<T> top = -std::numeric_limits<Wide<T>>::infinity();
    for (std::int64_t j = begin; j <= i; ++j) {
      scores[j] = dot(q + at.query(b, i, h), k + at.key(b, j, h), at.width) * scale;
      top = scores[j] > top ? scores[j] : top;
    }
    Wide<T> sum = 0;
    for (std::int64_t d = 0; d < at.width; ++d) row[d] = 0;
    for (std::int64_t j = begin; j <= i; ++j) {
      const Wide<T> p = exponential(scores[j] - top);
      const T* value = v + at.key(b, j, h);
      sum += p;
#pragma GCC ivdep
      for (std::int64_t d = 0; d < at.width; ++d) row[d] += p * widen(value[d]);
    }
    T* result = out + at.query(b, i, h);
    for (std::int64_t d = 0; d < at.width; ++d) narrow(row[d] / sum, result[d]);
    lse[(b * at.heads + h) * at.sequence + i] = top + std::log(sum);
  }
}

/// Adds one query head's part to the sums dk, dv [S, d] of its key head; dq is written.
/// ds = p (dout·v − dout·out); dq = Σ ds k scale, dk += ds q scale, dv += p dout.
template <class T>
TROUPE_VECTORISED void backward_head(const T* dout, const T* q, const T* k, const T* v, const T* out, const Wide<T>* lse, Wide<T> scale, T* dq, Wide<T>* dk,
                                     Wide<T>* dv, const Layout& at, std::int64_t b, std::int64_t h, const std::int32_t* starts, Wide<T>* row) {
  for (std::int64_t i = 0; i < at.sequence; ++i) {
    const T* query = q + at.query(b, i, h);
    const T* gradient = dout + at.query(b, i, h);
    const Wide<T> along = dot(gradient, out + at.query(b, i, h), at.width);
    const Wide<T> log_sum = lse[(b * at.heads + h) * at.sequence + i];
    for (std::int64_t d = 0; d < at.width; ++d) row[d] = 0;
    for (std::int64_t j = first_key(starts, i); j <= i; ++j) {
      const T* key = k + at.key(b, j, h);
      const Wide<T> p = exponential(dot(query, key, at.width) * scale - log_sum);
      const Wide<T> ds = p * (dot(gradient, v + at.key(b, j, h), at.width) - along) * scale;
#pragma GCC ivdep
      for (std::int64_t d = 0; d < at.width; ++d) {
        row[d] += ds * widen(key[d]);
        dk[j * at.width + d] += ds * widen(query[d]);
        dv[j * at.width + d] += p * widen(gradient[d]);
      }
    }
    T* result = dq + at.query(b, i, h);
    for (std::int64_t d = 0; d < at.width; ++d) narrow(row[d], result[d]);
  }
}

Layout layout_of(const TensorView& q, const TensorView& k) { return {q.shape[0], q.shape[1], q.shape[2], k.shape[2], q.shape[3]}; }

}  // namespace

void attention_reference(const TensorView& q, const TensorView& k, const TensorView& v, double scale, const TensorView& out, const TensorView& lse,
                         const TensorView& starts) {
  const Layout at = layout_of(q, k);
  with_floating(q.dtype, [&]<class T>(Type<T>) {
    in_parallel(at.batch * at.heads, 1, [&](std::int64_t first, std::int64_t last) {
      std::vector<Wide<T>> scores(static_cast<std::size_t>(at.sequence)), row(static_cast<std::size_t>(at.width));
      for (std::int64_t n = first; n < last; ++n) {
        forward_head(q.as<const T>(), k.as<const T>(), v.as<const T>(), static_cast<Wide<T>>(scale), out.as<T>(), lse.as<Wide<T>>(), at, n / at.heads,
                     n % at.heads, starts_of(starts, at, n / at.heads), scores.data(), row.data());
      }
    });
  });
}

void attention_reference_backward(const TensorView& dout, const TensorView& q, const TensorView& k, const TensorView& v, const TensorView& out,
                                  const TensorView& lse, double scale, const TensorView& dq, const TensorView& dk, const TensorView& dv,
                                  const TensorView& starts) {
  const Layout at = layout_of(q, k);
  const std::int64_t group = at.heads / at.kv_heads;
  with_floating(q.dtype, [&]<class T>(Type<T>) {
    in_parallel(at.batch * at.kv_heads, 1, [&](std::int64_t first, std::int64_t last) {
      const auto size = static_cast<std::size_t>(at.sequence * at.width);
      std::vector<Wide<T>> key_sums(size), value_sums(size), row(static_cast<std::size_t>(at.width));
      for (std::int64_t n = first; n < last; ++n) {
        const std::int64_t b = n / at.kv_heads, head = n % at.kv_heads;
        std::fill(key_sums.begin(), key_sums.end(), Wide<T>(0));
        std::fill(value_sums.begin(), value_sums.end(), Wide<T>(0));
        for (std::int64_t h = head * group; h < (head + 1) * group; ++h) {
          backward_head(dout.as<const T>(), q.as<const T>(), k.as<const T>(), v.as<const T>(), out.as<const T>(), lse.as<const Wide<T>>(),
                        static_cast<Wide<T>>(scale), dq.as<T>(), key_sums.data(), value_sums.data(), at, b, h, starts_of(starts, at, b), row.data());
        }
        for (std::int64_t s = 0; s < at.sequence; ++s) {
          const std::int64_t to = at.key(b, s, head * group), from = s * at.width;
          for (std::int64_t d = 0; d < at.width; ++d) {
            narrow(key_sums[static_cast<std::size_t>(from + d)], dk.as<T>()[to + d]);
            narrow(value_sums[static_cast<std::size_t>(from + d)], dv.as<T>()[to + d]);
          }
        }
      }
    });
  });
}

}  // namespace troupe::cpu
