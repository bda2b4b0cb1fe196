#include "src/device/cuda/kernels/attention.hpp"
#include "src/device/cuda/kernels/dispatch.cuh"
#include "src/device/cuda/kernels/reduce.cuh"

namespace troupe::cuda {
namespace {

constexpr int warps = 4;
constexpr int most_parts = 8;  // head sizes up to 256: element e of a head lies in lane e mod 32, part e / 32

using Row = float[most_parts];

template <class T>
__device__ void load_row(const T* from, int size, Row& row) {
#pragma unroll
  for (int i = 0; i < most_parts; ++i) {
    const int e = i * lanes + static_cast<int>(threadIdx.x) % lanes;
    row[i] = e < size ? widen(from[e]) : 0.0F;
  }
}
template <class T>
__device__ void store_row(T* to, int size, const Row& row) {
#pragma unroll
  for (int i = 0; i < most_parts; ++i) {
    const int e = i * lanes + static_cast<int>(threadIdx.x) % lanes;
    if (e < size) to[e] = narrow<T>(row[i]);
  }
}
__device__ float dot(const Row& a, const Row& b) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < most_parts; ++i) sum += a[i] * b[i];
  return over_warp<Sum>(sum);
}
__device__ void add_scaled(Row& to, float factor, const Row& from) {
#pragma unroll
  for (int i = 0; i < most_parts; ++i) to[i] += factor * from[i];
}

/// Where a warp works: one row of one head of one sequence.
struct Place {
  std::int64_t sequence, head, row;
  bool inside;
};
__device__ Place place_of(std::int64_t batch, std::int64_t heads, std::int64_t rows) {
  const std::int64_t n = blockIdx.x * std::int64_t(warps) + threadIdx.x / lanes;
  return {n / rows / heads, n / rows % heads, n % rows, n < batch * heads * rows};
}

template <class T>
__device__ const T* at(const void* data, const Attention& a, std::int64_t stride, std::int64_t b, std::int64_t s, std::int64_t h) {
  return static_cast<const T*>(data) + (b * a.sequence + s) * stride + h * a.head_size;
}

__device__ std::int64_t first_key(const Attention& a, const Place& p) { return a.starts == nullptr ? 0 : a.starts[p.sequence * a.sequence + p.row]; }

template <class T>
__global__ void __launch_bounds__(warps* lanes) forward_kernel(const Attention a) {
  const Place p = place_of(a.batch, a.heads, a.sequence);
  if (!p.inside) return;
  const int size = static_cast<int>(a.head_size);
  const std::int64_t kv = p.head / (a.heads / a.kv_heads);
  Row q, other, sum = {};
  load_row(at<T>(a.q, a, a.q_stride, p.sequence, p.row, p.head), size, q);
  float top = -INFINITY, total = 0;
  for (std::int64_t j = first_key(a, p); j <= p.row; ++j) {
    load_row(at<T>(a.k, a, a.k_stride, p.sequence, j, kv), size, other);
    const float score = dot(q, other) * a.scale;
    const float before = top;
    top = fmaxf(top, score);
    const float keep = before == top ? 1.0F : expf(before - top), weight = expf(score - top);
    total = total * keep + weight;
    load_row(at<T>(a.v, a, a.v_stride, p.sequence, j, kv), size, other);
#pragma unroll
    for (int i = 0; i < most_parts; ++i) sum[i] = sum[i] * keep + weight * other[i];
  }
#pragma unroll
  for (float& value : sum) value /= total;
  store_row(const_cast<T*>(at<T>(a.out, a, a.out_stride, p.sequence, p.row, p.head)), size, sum);
  if (threadIdx.x % lanes == 0) a.lse[(p.sequence * a.heads + p.head) * a.sequence + p.row] = top + logf(total);
}

/// along = dout · out of each row; dq = Σ ds k scale with ds = p (dout · v − along).
template <class T>
__global__ void __launch_bounds__(warps* lanes) query_kernel(const AttentionBackward call, float* along) {
  const Attention& a = call.forward;
  const Place p = place_of(a.batch, a.heads, a.sequence);
  if (!p.inside) return;
  const int size = static_cast<int>(a.head_size);
  const std::int64_t kv = p.head / (a.heads / a.kv_heads), row = (p.sequence * a.heads + p.head) * a.sequence + p.row;
  Row q, gradient, k, v, sum = {};
  load_row(at<T>(a.q, a, a.q_stride, p.sequence, p.row, p.head), size, q);
  load_row(at<T>(call.dout, a, call.dout_stride, p.sequence, p.row, p.head), size, gradient);
  load_row(at<T>(a.out, a, a.out_stride, p.sequence, p.row, p.head), size, k);
  const float pull = dot(gradient, k), lse = a.lse[row];
  if (threadIdx.x % lanes == 0) along[row] = pull;
  for (std::int64_t j = first_key(a, p); j <= p.row; ++j) {
    load_row(at<T>(a.k, a, a.k_stride, p.sequence, j, kv), size, k);
    load_row(at<T>(a.v, a, a.v_stride, p.sequence, j, kv), size, v);
    add_scaled(sum, expf(dot(q, k) * a.scale - lse) * (dot(gradient, v) - pull) * a.scale, k);
  }
  store_row(const_cast<T*>(at<T>(call.dq, a, call.dq_stride, p.sequence, p.row, p.head)), size, sum);
}

/// dk = Σ ds q scale, dv = Σ p dout over the query heads of a key head, in their order, and over the rows from the key's own.
template <class T>
__global__ void __launch_bounds__(warps* lanes) key_kernel(const AttentionBackward call, const float* along) {
  const Attention& a = call.forward;
  const Place p = place_of(a.batch, a.kv_heads, a.sequence);
  if (!p.inside) return;
  const int size = static_cast<int>(a.head_size);
  const std::int64_t group = a.heads / a.kv_heads;
  Row k, v, q, gradient, dk = {}, dv = {};
  load_row(at<T>(a.k, a, a.k_stride, p.sequence, p.row, p.head), size, k);
  load_row(at<T>(a.v, a, a.v_stride, p.sequence, p.row, p.head), size, v);
  for (std::int64_t h = p.head * group; h < (p.head + 1) * group; ++h) {
    for (std::int64_t i = p.row; i < a.sequence; ++i) {
      if (a.starts != nullptr && a.starts[p.sequence * a.sequence + i] > p.row) break;  // nor does any later row see it
      const std::int64_t row = (p.sequence * a.heads + h) * a.sequence + i;
      load_row(at<T>(a.q, a, a.q_stride, p.sequence, i, h), size, q);
      load_row(at<T>(call.dout, a, call.dout_stride, p.sequence, i, h), size, gradient);
      const float weight = expf(dot(q, k) * a.scale - a.lse[row]);
      add_scaled(dk, weight * (dot(gradient, v) - along[row]) * a.scale, q);
      add_scaled(dv, weight, gradient);
    }
  }
  store_row(const_cast<T*>(at<T>(call.dk, a, call.dk_stride, p.sequence, p.row, p.head)), size, dk);
  store_row(const_cast<T*>(at<T>(call.dv, a, call.dv_stride, p.sequence, p.row, p.head)), size, dv);
}

void require(const Attention& a) {
  if (a.head_size > most_parts * lanes || a.kv_heads < 1 || a.heads % a.kv_heads != 0) {
    refuse("plain_attention", "heads a multiple of kv_heads and a head size of at most 256");
  }
}

}  // namespace

std::size_t plain_attention_scratch(const Attention& a) { return static_cast<std::size_t>(a.batch * a.heads * a.sequence) * sizeof(float); }

void plain_attention(cudaStream_t stream, const Attention& call) {
  require(call);
  const std::int64_t rows = call.batch * call.heads * call.sequence;
  if (rows == 0) return;
  with_floating("plain_attention", call.type,
                [&](auto tag) { forward_kernel<decltype(tag)><<<grid(ceil_div(rows, warps)), warps * lanes, 0, stream>>>(call); });
  check_launch("plain_attention");
}

void plain_attention_backward(cudaStream_t stream, const AttentionBackward& call, void* scratch) {
  const Attention& a = call.forward;
  require(a);
  const std::int64_t rows = a.batch * a.heads * a.sequence, keys = a.batch * a.kv_heads * a.sequence;
  if (rows == 0) return;
  auto* along = static_cast<float*>(scratch);
  with_floating("plain_attention_backward", a.type, [&](auto tag) {
    query_kernel<decltype(tag)><<<grid(ceil_div(rows, warps)), warps * lanes, 0, stream>>>(call, along);
    key_kernel<decltype(tag)><<<grid(ceil_div(keys, warps)), warps * lanes, 0, stream>>>(call, along);
  });
  check_launch("plain_attention_backward");
}

}  // namespace troupe::cuda
