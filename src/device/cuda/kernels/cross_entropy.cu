#include "src/device/cuda/kernels/cross_entropy.hpp"
#include "src/device/cuda/kernels/dispatch.cuh"
#include "src/device/cuda/kernels/reduce.cuh"

namespace troupe::cuda {
namespace {

constexpr int threads = 512;

/// A running softmax: the largest value, and Σ exp(x − largest).
struct Softmax {
  float top, sum;
};
__device__ Softmax merged(Softmax a, Softmax b) {
  if (a.top < b.top) {
    const Softmax c = a;
    a = b;
    b = c;
  }
  if (b.sum != 0.0F) a.sum += b.sum * __expf(b.top - a.top);
  return a;
}

__device__ Softmax over_block_merged(Softmax value, Softmax* room) {
#pragma unroll
  for (int offset = lanes / 2; offset > 0; offset /= 2) {
    const Softmax other{__shfl_xor_sync(0xffffffffU, value.top, offset), __shfl_xor_sync(0xffffffffU, value.sum, offset)};
    value = merged(value, other);
  }
  if (threadIdx.x % lanes == 0) room[threadIdx.x / lanes] = value;
  __syncthreads();
  value = room[0];
  for (int i = 1; i < static_cast<int>(blockDim.x) / lanes; ++i) value = merged(value, room[i]);
  return value;
}

/// Any row length and alignment; a block a row, read twice.
template <class T>
__global__ void __launch_bounds__(threads) plain_kernel(const CrossEntropy call) {
  __shared__ Softmax room[threads / lanes];
  auto* row = static_cast<T*>(call.logits) + blockIdx.x * call.columns;
  const std::int64_t label = call.labels[blockIdx.x];
  if (label < 0 || label >= call.columns) {
    for (std::int64_t i = threadIdx.x; i < call.columns; i += threads) row[i] = narrow<T>(0.0F);
    if (threadIdx.x == 0) call.losses[blockIdx.x] = label < 0 ? 0.0F : __int_as_float(0x7fffffff);
    return;
  }
  float top = -INFINITY;
  for (std::int64_t i = threadIdx.x; i < call.columns; i += threads) top = fmaxf(top, widen(row[i]));
  Softmax mine{top, 0};
  const float base = top == -INFINITY ? 0.0F : top;  // a thread that saw nothing but −∞ adds nothing
  for (std::int64_t i = threadIdx.x; i < call.columns; i += threads) mine.sum += __expf(widen(row[i]) - base);
  const float target = widen(row[label]);
  const Softmax all = over_block_merged(mine, room);
  __syncthreads();  // the label's logit has been read
  const float factor = static_cast<float>(call.grad_scale) / all.sum;
  for (std::int64_t i = threadIdx.x; i < call.columns; i += threads) {
    const float p = __expf(widen(row[i]) - all.top) * factor;
    row[i] = narrow<T>(i == label ? p - static_cast<float>(call.grad_scale) : p);
  }
  if (threadIdx.x == 0) call.losses[blockIdx.x] = logf(all.sum) + (all.top - target);
}

/// One block; row i is always added by the same thread in the same order.
__global__ void __launch_bounds__(threads) totals_kernel(const float* losses, const std::int32_t* labels, std::int64_t rows, VerdictSums* sums) {
  __shared__ double room[threads / lanes];
  double loss = 0, tokens = 0, bad = 0;
  for (std::int64_t i = threadIdx.x; i < rows; i += threads) {
    if (labels[i] < 0) continue;
    loss += static_cast<double>(losses[i]);
    tokens += 1;
    if (!isfinite(losses[i])) bad += 1;
  }
  loss = over_block<Sum, threads>(loss, room);
  tokens = over_block<Sum, threads>(tokens, room);
  bad = over_block<Sum, threads>(bad, room);
  if (threadIdx.x != 0) return;
  sums->loss += loss;
  sums->tokens += tokens;
  sums->bad += bad;
}

}  // namespace

void cross_entropy(cudaStream_t stream, const CrossEntropy& call) {
  if (call.rows == 0) return;
  with_floating("cross_entropy", call.type, [&](auto tag) { plain_kernel<decltype(tag)><<<grid(call.rows), threads, 0, stream>>>(call); });
  check_launch("cross_entropy");
  totals_kernel<<<1, threads, 0, stream>>>(call.losses, call.labels, call.rows, call.sums);
  check_launch("cross_entropy");
}

}  // namespace troupe::cuda
