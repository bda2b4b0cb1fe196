// What happens to shards of gradients and parameters between the steps: their norm, their casts, their sum over ranks.
#include "src/device/cuda/kernels/dispatch.cuh"
#include "src/device/cuda/kernels/float8_counts.cuh"
#include "src/device/cuda/kernels/optimizer.hpp"
#include "src/device/cuda/kernels/reduce.cuh"
#include "src/device/cuda/kernels/tensor_list.cuh"

namespace troupe::cuda {
namespace {

constexpr int threads = 256;
constexpr int unroll = 4;
constexpr std::int64_t squares_chunk = std::int64_t(threads) * width * unroll * 8;  // 512 KiB of fp32 a block
constexpr std::int64_t cast_chunk = std::int64_t(threads) * width * 2;

struct SquaresRun {
  const void* x;
  bool bf16, vectors;
  std::int64_t elements;
};
using Runs = TensorList<SquaresRun, 120>;
using Casts = TensorList<ShardCast, 56>;  // kernels' parameters are at most 4 KiB

/// fp32 squares are exact in fp64.
__device__ double square(float x) { return static_cast<double>(x) * static_cast<double>(x); }

/// Two sums, so that additions need not wait for each other.
__device__ void add_squares(const float (&v)[width], double (&sum)[2]) {
#pragma unroll
  for (int i = 0; i < width; ++i) sum[i % 2] += square(v[i]);
}

template <class T>
__device__ double chunk_squares(const T* x, std::int64_t count, bool vectors) {
  double sum[2] = {0, 0};
  const std::int64_t whole = vectors ? count / width : 0;
  for (std::int64_t i = threadIdx.x; i < whole; i += std::int64_t(threads) * unroll) {
    Packed<T> loaded[unroll];
#pragma unroll
    for (int j = 0; j < unroll; ++j) loaded[j] = i + j * threads < whole ? load8(x + (i + j * threads) * width) : zero8<T>();
#pragma unroll
    for (int j = 0; j < unroll; ++j) {
      float v[width];
      unpack(loaded[j], v);
      add_squares(v, sum);
    }
  }
  for (std::int64_t i = whole * width + threadIdx.x; i < count; i += threads) sum[0] += square(widen(x[i]));
  return sum[0] + sum[1];
}

__global__ void __launch_bounds__(threads) squares_kernel(const Runs runs, double* partial) {
  __shared__ double room[threads / lanes];
  const int which = runs.of_chunk(static_cast<std::int32_t>(blockIdx.x));
  const SquaresRun& run = runs.tensor[which];
  const std::int64_t begin = (blockIdx.x - runs.first[which]) * squares_chunk;
  const std::int64_t count = min(squares_chunk, run.elements - begin);
  const double mine = run.bf16 ? chunk_squares(static_cast<const BFloat16*>(run.x) + begin, count, run.vectors)
                               : chunk_squares(static_cast<const float*>(run.x) + begin, count, run.vectors);
  const double sum = over_block<Sum, threads>(mine, room);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(threads) finish_kernel(const double* partial, std::int64_t count, double* sum) {
  __shared__ double room[threads / lanes];
  double mine = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += threads) mine += partial[i];
  mine = over_block<Sum, threads>(mine, room);
  if (threadIdx.x == 0) *sum += mine;
}

template <Element E>
__device__ void cast_chunk_to(const ShardCast& shard, std::int64_t begin) {
  const float s = shard.given_scale != nullptr ? *shard.given_scale : scale_of(*shard.amax, Float8<E>::largest);
  std::uint32_t beyond = 0, strange = 0;
  if (begin == 0 && threadIdx.x == 0 && shard.scale != nullptr) *shard.scale = s;
  auto* to = static_cast<std::uint8_t*>(shard.to);
  Packed<float> loaded[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::int64_t at = begin + (std::int64_t(i) * threads + threadIdx.x) * width;
    if (at + width <= shard.elements) loaded[i] = load8(shard.from + at);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::int64_t at = begin + (std::int64_t(i) * threads + threadIdx.x) * width;
    if (at + width <= shard.elements) {
      float v[width];
      unpack(loaded[i], v);
#pragma unroll
      for (float value : v) look_at<E>(value * s, beyond, strange);
      *reinterpret_cast<uint2*>(to + at) =
          make_uint2(to_float8<E>(v[0] * s, v[1] * s, v[2] * s, v[3] * s), to_float8<E>(v[4] * s, v[5] * s, v[6] * s, v[7] * s));
    } else {
      for (std::int64_t j = at; j < shard.elements; ++j) {
        look_at<E>(shard.from[j] * s, beyond, strange);
        to[j] = to_float8<E>(shard.from[j] * s);
      }
    }
  }
  if (shard.counts != nullptr) tell(beyond, strange, shard.counts);
}

__device__ void cast_chunk_to_bf16(const ShardCast& shard, std::int64_t begin) {
  auto* to = static_cast<BFloat16*>(shard.to);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::int64_t at = begin + (std::int64_t(i) * threads + threadIdx.x) * width;
    if (at + width <= shard.elements) {
      float v[width];
      unpack(load8(shard.from + at), v);
      store8(to + at, pack<BFloat16>(v));
    } else {
      for (std::int64_t j = at; j < shard.elements; ++j) to[j] = narrow<BFloat16>(shard.from[j]);
    }
  }
}

__global__ void __launch_bounds__(threads) cast_kernel(const Casts casts) {
  const int which = casts.of_chunk(static_cast<std::int32_t>(blockIdx.x));
  const ShardCast& shard = casts.tensor[which];
  const std::int64_t begin = (blockIdx.x - casts.first[which]) * cast_chunk;
  if (shard.format == Element::bf16) return cast_chunk_to_bf16(shard, begin);
  if (shard.format == Element::e4m3) return cast_chunk_to<Element::e4m3>(shard, begin);
  cast_chunk_to<Element::e5m2>(shard, begin);
}

__global__ void __launch_bounds__(threads) gradient_sum_kernel(const GradientSum call) {
  __shared__ double room[threads / lanes];
  double squares[2] = {0, 0};
  const std::int64_t step = std::int64_t(gridDim.x) * threads * width;
  for (std::int64_t at = (blockIdx.x * std::int64_t(threads) + threadIdx.x) * width; at < call.elements; at += step) {
    float sum[width] = {}, v[width];
    if (at + width <= call.elements) {
      if (call.accumulate) unpack(load8(call.to + at), sum);
      for (int s = 0; s < call.slices; ++s) {
        unpack(load8(static_cast<const BFloat16*>(call.slice[s]) + at), v);
#pragma unroll
        for (int i = 0; i < width; ++i) sum[i] += v[i];
      }
      store8(call.to + at, pack<float>(sum));
      add_squares(sum, squares);
    } else {
      for (std::int64_t j = at; j < call.elements; ++j) {
        float total = call.accumulate ? call.to[j] : 0.0F;
        for (int s = 0; s < call.slices; ++s) total += widen(static_cast<const BFloat16*>(call.slice[s])[j]);
        call.to[j] = total;
        squares[0] += square(total);
      }
    }
  }
  if (call.partial_squares == nullptr) return;
  const double sum = over_block<Sum, threads>(squares[0] + squares[1], room);
  if (threadIdx.x == 0) call.partial_squares[blockIdx.x] = sum;
}

}  // namespace

std::size_t sum_squares_scratch(std::size_t runs, std::int64_t elements) {
  const std::size_t at_once = runs < Runs::capacity ? runs : Runs::capacity;
  return (static_cast<std::size_t>(ceil_div(elements, squares_chunk)) + at_once) * sizeof(double);
}

void sum_squares(cudaStream_t stream, const Run* runs, std::size_t count, double* sum, void* scratch) {
  auto* partial = static_cast<double*>(scratch);
  for (std::size_t begin = 0; begin < count; begin += Runs::capacity) {
    SquaresRun group[Runs::capacity];
    std::size_t size = 0;
    for (std::size_t i = begin; i < count && size < Runs::capacity; ++i) {
      if (runs[i].type != Element::f32 && runs[i].type != Element::bf16) refuse("sum_squares", "fp32 or bf16");
      group[size++] = {runs[i].x, runs[i].type == Element::bf16, aligned(runs[i].x), runs[i].elements};
    }
    in_lists<Runs>(group, size, squares_chunk, [&](const Runs& list, std::int64_t chunks, std::size_t) {
      if (chunks == 0) return;
      squares_kernel<<<grid(chunks), threads, 0, stream>>>(list, partial);
      finish_kernel<<<1, threads, 0, stream>>>(partial, chunks, sum);
      check_launch("sum_squares");
    });
  }
}

void cast_shards(cudaStream_t stream, const ShardCast* shards, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const ShardCast& shard = shards[i];
    if (!aligned(shard.from) || !aligned(shard.to, shard.format == Element::bf16 ? 16 : 8)) refuse("cast_shards", "aligned shards");
    if (shard.format != Element::bf16 && shard.amax == nullptr && shard.given_scale == nullptr) refuse("cast_shards", "an amax for fp8");
  }
  in_lists<Casts>(shards, count, cast_chunk, [&](const Casts& list, std::int64_t chunks, std::size_t) {
    if (chunks == 0) return;
    cast_kernel<<<grid(chunks), threads, 0, stream>>>(list);
    check_launch("cast_shards");
  });
}

std::size_t gradient_sum_partials() { return static_cast<std::size_t>(multiprocessors()) * 8; }

void gradient_sum(cudaStream_t stream, const GradientSum& call) {
  if (call.slices < 0 || call.slices > GradientSum::most) refuse("gradient_sum", "at most 32 slices");
  if (!aligned(call.to)) refuse("gradient_sum", "16-byte aligned memory");
  for (int i = 0; i < call.slices; ++i) {
    if (!aligned(call.slice[i])) refuse("gradient_sum", "16-byte aligned memory");
  }
  gradient_sum_kernel<<<static_cast<unsigned>(gradient_sum_partials()), threads, 0, stream>>>(call);
  check_launch("gradient_sum");
}

void sum_partial_squares(cudaStream_t stream, const double* partial, std::size_t count, double* sum) {
  finish_kernel<<<1, threads, 0, stream>>>(partial, static_cast<std::int64_t>(count), sum);
  check_launch("sum_partial_squares");
}

}  // namespace troupe::cuda
