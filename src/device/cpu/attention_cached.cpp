#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "src/device/cached_attention.hpp"
#include "src/device/cpu/arguments.hpp"
#include "src/device/cpu/bfloat16.hpp"

namespace troupe::cpu {
namespace {

constexpr const char* rule = "q, out [T,H,d], k, v [S,KV,d] of one floating type with H a multiple of KV and S at least T";

bool shapes(const TensorView& q, const TensorView& k, const TensorView& v, const TensorView& out) {
  if (q.shape.rank != 3 || k.shape.rank != 3 || k.shape != v.shape || out.shape != q.shape || !Arguments::floating(q.dtype)) return false;
  if (k.dtype != q.dtype || v.dtype != q.dtype || out.dtype != q.dtype) return false;
  return k.shape[2] == q.shape[2] && k.shape[1] > 0 && q.shape[1] % k.shape[1] == 0 && k.shape[0] >= q.shape[0];
}

/// One head of one query over `seen` keys; `scores` has room for them.
template <class T>
void attend(const T* q, const T* k, const T* v, std::int64_t seen, std::int64_t stride, std::int64_t width, Wide<T> scale, T* out, Wide<T>* scores,
            Wide<T>* row) {
  Wide<T> top = -std::numeric_limits<Wide<T>>::infinity();
  for (std::int64_t j = 0; j < seen; ++j) {
    Wide<T> sum = 0;
    for (std::int64_t i = 0; i < width; ++i) sum += widen(q[i]) * widen(k[j * stride + i]);
    scores[j] = sum * scale;
    top = std::max(top, scores[j]);
  }
  Wide<T> total = 0;
  for (std::int64_t j = 0; j < seen; ++j) total += scores[j] = std::exp(scores[j] - top);
  for (std::int64_t i = 0; i < width; ++i) row[i] = 0;
  for (std::int64_t j = 0; j < seen; ++j) {
    for (std::int64_t i = 0; i < width; ++i) row[i] += scores[j] * widen(v[j * stride + i]);
  }
  for (std::int64_t i = 0; i < width; ++i) narrow(row[i] / total, out[i]);
}

template <class T>
void run(const TensorView& q, const TensorView& k, const TensorView& v, double scale, const TensorView& out) {
  const std::int64_t tokens = q.shape[0], heads = q.shape[1], width = q.shape[2], keys = k.shape[0], kv_heads = k.shape[1];
  std::vector<Wide<T>> scores(static_cast<std::size_t>(keys)), row(static_cast<std::size_t>(width));
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::int64_t at = (t * heads + h) * width, kv = h / (heads / kv_heads) * width;
      attend(q.as<const T>() + at, k.as<const T>() + kv, v.as<const T>() + kv, keys - tokens + t + 1, kv_heads * width, width, static_cast<Wide<T>>(scale),
             out.as<T>() + at, scores.data(), row.data());
    }
  }
}

class CpuCachedAttention final : public CachedAttention {
 public:
  void attention_cached(Stream&, TensorView q, TensorView k, TensorView v, double scale, TensorView out) override {
    const Arguments arguments("attention_cached", rule, {{"q", q}, {"k", k}, {"v", v}, {"out", out}});
    arguments.require(shapes(q, k, v, out));
    if (q.dtype == DType::bf16) return run<BFloat16>(q, k, v, scale, out);
    if (q.dtype == DType::f64) return run<double>(q, k, v, scale, out);
    run<float>(q, k, v, scale, out);
  }
};

}  // namespace
}  // namespace troupe::cpu

namespace troupe {

std::unique_ptr<CachedAttention> make_cpu_cached_attention() { return std::make_unique<cpu::CpuCachedAttention>(); }

}  // namespace troupe
