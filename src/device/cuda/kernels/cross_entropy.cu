#include <cooperative_groups.h>

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

/// 2^x by the special-function unit.
__device__ float power_of_two(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
constexpr float log2_of_e = 1.4426950408889634F;

/// Where a row is read and written by a cluster: vector i of this thread, interleaved over blocks.
template <int cluster, int block, int vectors>
struct Share {
  std::int64_t whole;  ///< vectors of the row
  int rank;
  [[nodiscard]] __device__ std::int64_t at(int i) const { return (static_cast<std::int64_t>(i) * cluster + rank) * block + threadIdx.x; }
  [[nodiscard]] __device__ bool has(int i) const { return at(i) < whole; }
};

template <int vectors, class T>
__device__ Softmax softmax_of(const Packed<T> (&loaded)[vectors], const bool (&there)[vectors]) {
  Softmax mine{-INFINITY, 0};
#pragma unroll
  for (int i = 0; i < vectors; ++i) {
    float v[width];
    unpack(loaded[i], v);
#pragma unroll
    for (float value : v) mine.top = there[i] ? fmaxf(mine.top, value) : mine.top;
  }
  const float base = mine.top == -INFINITY ? 0.0F : mine.top * log2_of_e;  // a thread that saw nothing but −∞ adds nothing
#pragma unroll
  for (int i = 0; i < vectors; ++i) {
    float v[width];
    unpack(loaded[i], v);
#pragma unroll
    for (float value : v) mine.sum += there[i] ? power_of_two(value * log2_of_e - base) : 0.0F;
  }
  return mine;
}

/// A row is held in the registers of a cluster of blocks: one read, one write.
template <int cluster, int block, int vectors, class T>
__global__ void __launch_bounds__(block) cluster_kernel(const CrossEntropy call) {
#if __CUDA_ARCH__ >= 900
  namespace cg = cooperative_groups;
  __shared__ Softmax room[block / lanes];
  __shared__ Softmax parts[cluster];
  const std::int64_t row = blockIdx.x / cluster;
  const Share<cluster, block, vectors> share{call.columns / width, static_cast<int>(blockIdx.x % cluster)};
  auto* logits = static_cast<T*>(call.logits) + row * call.columns;
  const std::int64_t label = call.labels[row];
  if (label < 0 || label >= call.columns) {
#pragma unroll
    for (int i = 0; i < vectors; ++i) {
      if (share.has(i)) store8(logits + share.at(i) * width, zero8<T>());
    }
    if (share.rank == 0 && threadIdx.x == 0) call.losses[row] = label < 0 ? 0.0F : __int_as_float(0x7fffffff);
    return;
  }
  if constexpr (cluster > 1) asm volatile("barrier.cluster.arrive.relaxed.aligned;");  // "this block runs": its shared memory may be written
  Packed<T> loaded[vectors];
  bool there[vectors];
#pragma unroll
  for (int i = 0; i < vectors; ++i) {
    there[i] = share.has(i);
    loaded[i] = there[i] ? load8(logits + share.at(i) * width) : zero8<T>();
  }
  Softmax all = over_block_merged(softmax_of(loaded, there), room);
  if constexpr (cluster > 1) {
    cg::cluster_group group = cg::this_cluster();
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
    if (threadIdx.x < cluster) *group.map_shared_rank(&parts[share.rank], static_cast<int>(threadIdx.x)) = all;
    group.sync();
    all = parts[0];
#pragma unroll
    for (int i = 1; i < cluster; ++i) all = merged(all, parts[i]);
  }
  const float scale = static_cast<float>(call.grad_scale), factor = scale / all.sum, base = all.top * log2_of_e;
#pragma unroll
  for (int i = 0; i < vectors; ++i) {
    if (!there[i]) continue;
    float v[width];
    unpack(loaded[i], v);
    const std::int64_t first = share.at(i) * width;
    const bool mine = label >= first && label < first + width;
    float target = 0;
#pragma unroll
    for (int j = 0; j < width; ++j) {
      const float p = power_of_two(v[j] * log2_of_e - base) * factor;
      const bool here = mine && label == first + j;
      target = here ? v[j] : target;
      v[j] = here ? p - scale : p;
    }
    store8(logits + first, pack<T>(v));
    if (mine) call.losses[row] = logf(all.sum) + (all.top - target);
  }
#endif
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

template <int cluster, int block, int vectors, class T>
void launch(cudaStream_t stream, const CrossEntropy& call) {
  cudaLaunchConfig_t config{};
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = cluster;
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  config.gridDim = dim3(grid(call.rows * cluster));
  config.blockDim = dim3(block);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, cluster_kernel<cluster, block, vectors, T>, call), "cross_entropy");
}

template <class T>
void launch_for(cudaStream_t stream, const CrossEntropy& call) {
  const std::int64_t whole = call.columns / width;
  if (!hopper() || call.columns % width != 0 || !aligned(call.logits) || whole > 8 * threads * 8) {
    plain_kernel<T><<<grid(call.rows), threads, 0, stream>>>(call);
  } else if (whole <= 2 * threads * 4) {
    launch<2, threads, 4, T>(stream, call);
  } else if (whole <= 8 * threads * 4) {
    launch<8, threads, 4, T>(stream, call);
  } else {
    launch<8, threads, 8, T>(stream, call);
  }
}

}  // namespace

void cross_entropy(cudaStream_t stream, const CrossEntropy& call) {
  if (call.rows == 0) return;
  with_floating("cross_entropy", call.type, [&](auto tag) { launch_for<decltype(tag)>(stream, call); });
  check_launch("cross_entropy");
  totals_kernel<<<1, threads, 0, stream>>>(call.losses, call.labels, call.rows, call.sums);
  check_launch("cross_entropy");
}

}  // namespace troupe::cuda
