#include <cooperative_groups.h>

#include <atomic>

#include "src/device/cuda/kernels/bulk_copy.cuh"
#include "src/device/cuda/kernels/cross_entropy.hpp"
#include "src/device/cuda/kernels/dispatch.cuh"
#include "src/device/cuda/kernels/reduce.cuh"

namespace troupe::cuda {
namespace {

constexpr int plain_threads = 512;
constexpr float log2_of_e = 1.4426950408889634F;
constexpr float infinity = __builtin_huge_valf();

/// 2^x by the special-function unit.
__device__ float power_of_two(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

/// A running softmax: the largest value, and Σ exp(x − largest).
struct Softmax {
  float top, sum;
};
/// The same bits whichever comes first. Nothing but −∞ adds nothing; a sum of NaN stays.
__device__ Softmax merged(Softmax a, Softmax b) {
  const bool first = a.top >= b.top;
  const float top = first ? a.top : b.top, low = first ? b.top : a.top;
  const float keep = first ? a.sum : b.sum, other = first ? b.sum : a.sum;
  return {top, low == -infinity ? keep + other : keep + other * power_of_two((low - top) * log2_of_e)};
}
__device__ Softmax over_warp_merged(Softmax value) {
#pragma unroll
  for (int offset = lanes / 2; offset > 0; offset /= 2) {
    value = merged(value, {__shfl_xor_sync(0xffffffffU, value.top, offset), __shfl_xor_sync(0xffffffffU, value.sum, offset)});
  }
  return value;
}

__device__ float largest_of(const Packed<BFloat16>& value) {
  const auto pair = [](std::uint32_t word) { return *reinterpret_cast<const __nv_bfloat162*>(&word); };
  const __nv_bfloat162 top = __hmax2(__hmax2(pair(value.words.x), pair(value.words.y)), __hmax2(pair(value.words.z), pair(value.words.w)));
  return fmaxf(__low2float(top), __high2float(top));
}
__device__ float largest_of(const Packed<float>& value) {
  const float4 &a = value.low, &b = value.high;
  return fmaxf(fmaxf(fmaxf(a.x, a.y), fmaxf(a.z, a.w)), fmaxf(fmaxf(b.x, b.y), fmaxf(b.z, b.w)));
}
template <class T>
__device__ Packed<T> nothing8();  ///< −∞, whose exponential is zero
template <>
__device__ Packed<BFloat16> nothing8() {
  return {make_uint4(0xff80ff80U, 0xff80ff80U, 0xff80ff80U, 0xff80ff80U)};
}
template <>
__device__ Packed<float> nothing8() {
  return {make_float4(-infinity, -infinity, -infinity, -infinity), make_float4(-infinity, -infinity, -infinity, -infinity)};
}

template <int vectors, class T>
__device__ Softmax softmax_of(const Packed<T> (&held)[vectors]) {
  Softmax mine{-infinity, 0};
#pragma unroll
  for (int i = 0; i < vectors; ++i) mine.top = fmaxf(mine.top, largest_of(held[i]));
  const float base = mine.top == -infinity ? 0.0F : mine.top * log2_of_e;
  float sum[2] = {0, 0};
#pragma unroll
  for (int i = 0; i < vectors; ++i) {
    float v[width];
    unpack(held[i], v);
#pragma unroll
    for (int j = 0; j < width; ++j) sum[j % 2] += power_of_two(v[j] * log2_of_e - base);
  }
  mine.sum = sum[0] + sum[1];
  return mine;
}

/// Of every warp of a cluster of blocks, in each block's shared memory.
template <int cluster, int warps>
struct ClusterParts {
  Softmax part[cluster * warps];
  ByteBarrier heard;
  [[nodiscard]] __device__ Softmax all() const {
    Softmax result{-infinity, 0};
#pragma unroll
    for (int i = 0; i < (cluster * warps + lanes - 1) / lanes; ++i) {
      const int at = i * lanes + static_cast<int>(threadIdx.x) % lanes;
      if (at < cluster * warps) result = merged(result, part[at]);
    }
    return over_warp_merged(result);
  }
};

/// Writes the gradient over a thread's vectors; `part` is the block's part of the row, `label` counted from its beginning. The thread that
/// holds the label's logit also writes the loss.
template <int block, int vectors, class T>
__device__ void write_gradient(const Packed<T> (&held)[vectors], T* part, int whole, std::int64_t label, Softmax all, float scale, float* loss) {
  const float factor = scale / all.sum, base = all.top * log2_of_e;
  const bool here = label >= 0 && label < static_cast<std::int64_t>(whole) * width;
  const int vector = here ? static_cast<int>(label / width) : -1, place = static_cast<int>(label % width);
  float target = 0;
#pragma unroll
  for (int i = 0; i < vectors; ++i) {
    const int at = i * block + static_cast<int>(threadIdx.x);
    float v[width];
    unpack(held[i], v);
    if (at == vector) {
#pragma unroll
      for (int j = 0; j < width; ++j) target = j == place ? v[j] : target;
    }
#pragma unroll
    for (int j = 0; j < width; ++j) v[j] = power_of_two(v[j] * log2_of_e - base) * factor;
    if (at == vector) {
#pragma unroll
      for (int j = 0; j < width; ++j) v[j] -= j == place ? scale : 0.0F;
    }
    if (at < whole) store8(part + static_cast<std::int64_t>(at) * width, pack<T>(v));
  }
  if (here && vector % block == static_cast<int>(threadIdx.x)) *loss = logf(all.sum) + (all.top - target);
}

/// A row belongs to a cluster of blocks, each with a contiguous part that it holds in registers, so that a logit is read once. Clusters walk
/// through the rows; while a row is worked on, the next one's part is on its way to shared memory. Dynamic shared memory: the part.
template <class T, int cluster, int block, int vectors, int blocks>
__global__ void __launch_bounds__(block, blocks) cluster_kernel(const CrossEntropy call) {
#if __CUDA_ARCH__ >= 900
  constexpr int warps = block / lanes;
  extern __shared__ uint4 stage[];
  __shared__ ByteBarrier arrived;
  __shared__ ClusterParts<cluster, warps> parts[2];  // two turns: a peer may be one row ahead
  const auto group = cooperative_groups::this_cluster();
  const int rank = static_cast<int>(blockIdx.x % cluster), thread = static_cast<int>(threadIdx.x), lane = thread % lanes;
  const int row_vectors = static_cast<int>(call.columns / width), share = (row_vectors + cluster - 1) / cluster;
  const int whole = min(share, row_vectors - rank * share);  // the last part is the shortest
  const auto bytes = static_cast<std::uint32_t>(whole * width * static_cast<int>(sizeof(T)));
  const std::int64_t first_column = static_cast<std::int64_t>(rank) * share * width, step = gridDim.x / cluster;
  const auto part_of = [&](std::int64_t row) { return static_cast<T*>(call.logits) + row * call.columns + first_column; };
  const auto fill = [&](std::int64_t row) {
    arrived.expect(bytes);
    copy_bulk(stage, part_of(row), bytes, arrived);
  };
  std::int64_t row = blockIdx.x / cluster;
  if (thread == 0) {
    arrived.prepare();
    parts[0].heard.prepare();
    parts[1].heard.prepare();
    fill(row);
  }
  group.sync();            // all blocks run, their barriers are there
  std::uint32_t turn = 0;  // of the rows with a label: those without one need no word from the peers
  for (std::uint32_t phase = 0; row < call.rows; phase ^= 1, row += step) {
    const std::int64_t label = call.labels[row];
    Packed<T> held[vectors];
    arrived.wait(phase);
#pragma unroll
    for (int i = 0; i < vectors; ++i) {
      const int at = i * block + thread;
      held[i] = at < whole ? load8(reinterpret_cast<const T*>(stage) + at * width) : nothing8<T>();
    }
    __syncthreads();
    if (thread == 0 && row + step < call.rows) fill(row + step);
    if (label < 0 || label >= call.columns) {
#pragma unroll
      for (int i = 0; i < vectors; ++i) {
        if (i * block + thread < whole) store8(part_of(row) + (i * block + thread) * width, zero8<T>());
      }
      if (rank == 0 && thread == 0) call.losses[row] = label < 0 ? 0.0F : __int_as_float(0x7fffffff);
      continue;
    }
    auto& now = parts[turn % 2];
    const Softmax mine = over_warp_merged(softmax_of(held));
    if (thread == 0) now.heard.expect(cluster * warps * sizeof(Softmax));
    if (lane < cluster) send_pair(mine.top, mine.sum, &now.part[rank * warps + thread / lanes], now.heard, static_cast<std::uint32_t>(lane));
    now.heard.wait(turn / 2 % 2);
    write_gradient<block>(held, part_of(row), whole, label - first_column, now.all(), static_cast<float>(call.grad_scale), call.losses + row);
    ++turn;
  }
  group.sync();  // no block goes while words to it are under way
#endif
}

/// Any row length and alignment; a block a row, read twice.
template <class T>
__global__ void __launch_bounds__(plain_threads) plain_kernel(const CrossEntropy call) {
  __shared__ Softmax room[plain_threads / lanes];
  auto* row = static_cast<T*>(call.logits) + blockIdx.x * call.columns;
  const std::int64_t label = call.labels[blockIdx.x];
  if (label < 0 || label >= call.columns) {
    for (std::int64_t i = threadIdx.x; i < call.columns; i += plain_threads) row[i] = narrow<T>(0.0F);
    if (threadIdx.x == 0) call.losses[blockIdx.x] = label < 0 ? 0.0F : __int_as_float(0x7fffffff);
    return;
  }
  Softmax all{-infinity, 0};
  for (std::int64_t i = threadIdx.x; i < call.columns; i += plain_threads) all.top = fmaxf(all.top, widen(row[i]));
  const float mine = all.top == -infinity ? 0.0F : all.top * log2_of_e;
  for (std::int64_t i = threadIdx.x; i < call.columns; i += plain_threads) all.sum += power_of_two(widen(row[i]) * log2_of_e - mine);
  all = over_warp_merged(all);
  if (threadIdx.x % lanes == 0) room[threadIdx.x / lanes] = all;
  const float target = widen(row[label]);
  __syncthreads();
  all = room[0];
  for (int i = 1; i < plain_threads / lanes; ++i) all = merged(all, room[i]);
  const float scale = static_cast<float>(call.grad_scale), factor = scale / all.sum, base = all.top * log2_of_e;
  for (std::int64_t i = threadIdx.x; i < call.columns; i += plain_threads) {
    const float p = power_of_two(widen(row[i]) * log2_of_e - base) * factor;
    row[i] = narrow<T>(i == label ? p - scale : p);
  }
  if (threadIdx.x == 0) call.losses[blockIdx.x] = logf(all.sum) + (all.top - target);
}

/// One block; row i is always added by the same thread in the same order.
__global__ void __launch_bounds__(plain_threads) totals_kernel(const float* losses, const std::int32_t* labels, std::int64_t rows, VerdictSums* sums) {
  __shared__ double room[plain_threads / lanes];
  double loss = 0, tokens = 0, bad = 0;
  for (std::int64_t i = threadIdx.x; i < rows; i += plain_threads) {
    if (labels[i] < 0) continue;
    loss += static_cast<double>(losses[i]);
    tokens += 1;
    if (!isfinite(losses[i])) bad += 1;
  }
  loss = over_block<Sum, plain_threads>(loss, room);
  tokens = over_block<Sum, plain_threads>(tokens, room);
  bad = over_block<Sum, plain_threads>(bad, room);
  if (threadIdx.x != 0) return;
  sums->loss += loss;
  sums->tokens += tokens;
  sums->bad += bad;
}

template <class T, int cluster, int block, int vectors, int blocks>
void launch(cudaStream_t stream, const CrossEntropy& call) {
  const auto kernel = cluster_kernel<T, cluster, block, vectors, blocks>;
  cudaLaunchConfig_t config{};
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = cluster;
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  config.blockDim = dim3(block);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  config.dynamicSmemBytes = static_cast<std::size_t>(ceil_div(call.columns / width, cluster)) * width * sizeof(T);
  static std::atomic<int> known{0};  // clusters that run at once with the largest part
  int clusters = known.load(std::memory_order_relaxed);
  if (clusters == 0) {
    constexpr int most = block * vectors * width * static_cast<int>(sizeof(T));
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most), "cross_entropy");
    config.gridDim = dim3(cluster);
    check(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config), "cross_entropy");
    known.store(clusters, std::memory_order_relaxed);
  }
  config.gridDim = dim3(grid((clusters < call.rows ? clusters : call.rows) * cluster));
  check(cudaLaunchKernelEx(&config, kernel, call), "cross_entropy");
}

/// The fewest blocks whose registers hold a row: measured at 128,256 columns, two large blocks beat eight small ones by 5 %.
template <class T>
void launch_for(cudaStream_t stream, const CrossEntropy& call) {
  const std::int64_t whole = call.columns / width;
  constexpr std::int64_t most = sizeof(T) == 2 ? 4 * 1024 * 8 : 8 * 512 * 6;
  if (!hopper() || call.columns % width != 0 || !aligned(call.logits) || whole < 64 || whole > most) {
    plain_kernel<T><<<grid(call.rows), plain_threads, 0, stream>>>(call);
  } else if constexpr (sizeof(T) == 2) {
    if (whole <= 2 * 256 * 8) return launch<T, 2, 256, 8, 4>(stream, call);
    if (whole <= 2 * 1024 * 8) return launch<T, 2, 1024, 8, 1>(stream, call);
    launch<T, 4, 1024, 8, 1>(stream, call);
  } else {
    if (whole <= 2 * 512 * 4) return launch<T, 2, 512, 4, 2>(stream, call);
    if (whole <= 8 * 512 * 4) return launch<T, 8, 512, 4, 2>(stream, call);
    launch<T, 8, 512, 6, 1>(stream, call);
  }
}

}  // namespace

void cross_entropy(cudaStream_t stream, const CrossEntropy& call) {
  if (call.rows == 0) return;
  with_floating("cross_entropy", call.type, [&](auto tag) { launch_for<decltype(tag)>(stream, call); });
  check_launch("cross_entropy");
  totals_kernel<<<1, plain_threads, 0, stream>>>(call.losses, call.labels, call.rows, call.sums);
  check_launch("cross_entropy");
}

}  // namespace troupe::cuda
