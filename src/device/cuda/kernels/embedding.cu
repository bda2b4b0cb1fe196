#include <cub/device/device_radix_sort.cuh>

#include "src/device/cuda/kernels/dispatch.cuh"
#include "src/device/cuda/kernels/embedding.hpp"

namespace troupe::cuda {
namespace {

constexpr int threads = 256;
constexpr int rows_a_block = 16;
constexpr int at_once = 8, groups_at_once = 4;  // occurrences, and sums of groups, whose rows are in flight together
constexpr int group_size = 32;

template <class T>
__global__ void __launch_bounds__(threads)
    lookup_kernel(const std::int32_t* tokens, const T* __restrict__ table, std::int64_t vocabulary, std::int64_t columns, bool vectors, T* out) {
  const std::int64_t token = tokens[blockIdx.x];
  const bool known = token >= 0 && token < vocabulary;
  const T* from = table + (known ? token : 0) * columns;
  T* to = out + blockIdx.x * columns;
  const T nothing = narrow<T>(__int_as_float(0x7fffffff));
  if (vectors && known) {
    for (std::int64_t i = threadIdx.x * width; i < columns; i += threads * width) store8(to + i, load8(from + i));
    return;
  }
  for (std::int64_t i = threadIdx.x; i < columns; i += threads) to[i] = known ? from[i] : nothing;
}

/// Keys for the sort: ids outside the table behind all others.
__global__ void number_kernel(const std::int32_t* tokens, std::int64_t count, std::int64_t vocabulary, std::uint32_t* keys, std::int32_t* positions) {
  const std::int64_t i = blockIdx.x * std::int64_t(threads) + threadIdx.x;
  if (i >= count) return;
  const std::int64_t token = tokens[i];
  keys[i] = static_cast<std::uint32_t>(token >= 0 && token < vocabulary ? token : vocabulary);
  positions[i] = static_cast<std::int32_t>(i);
}

/// First index whose key is not below `key`.
__device__ std::int64_t lower_bound(const std::uint32_t* keys, std::int64_t count, std::uint32_t key) {
  std::int64_t first = 0;
  while (count > 0) {
    const std::int64_t half = count / 2;
    const bool below = keys[first + half] < key;
    first = below ? first + half + 1 : first;
    count = below ? count - half - 1 : half;
  }
  return first;
}

/// sum += the rows of dout at these places of the sorted list, in its order.
template <class T>
__device__ void add_rows(const EmbeddingBackward& call, const std::int32_t* __restrict__ positions, std::int64_t column, std::int64_t first, std::int64_t last,
                         float (&sum)[width]) {
  const auto* dout = static_cast<const T*>(call.dout) + column;
  for (std::int64_t at = first; at < last; at += at_once) {
    Packed<T> loaded[at_once];
#pragma unroll
    for (int j = 0; j < at_once; ++j) loaded[j] = at + j < last ? load8(dout + positions[at + j] * call.columns) : zero8<T>();
#pragma unroll
    for (int j = 0; j < at_once; ++j) {
      float v[width];
      unpack(loaded[j], v);
      if (at + j >= last) break;
#pragma unroll
      for (int k = 0; k < width; ++k) sum[k] += v[k];
    }
  }
}

/// The same of whole groups, whose sums are there.
__device__ void add_groups(const float* __restrict__ sums, std::int64_t columns, std::int64_t column, std::int64_t first, std::int64_t last,
                           float (&sum)[width]) {
  for (std::int64_t at = first; at < last; at += groups_at_once) {
    Packed<float> loaded[groups_at_once];
#pragma unroll
    for (int j = 0; j < groups_at_once; ++j) loaded[j] = at + j < last ? load8(sums + (at + j) * columns + column) : zero8<float>();
#pragma unroll
    for (int j = 0; j < groups_at_once; ++j) {
      float v[width];
      unpack(loaded[j], v);
      if (at + j >= last) break;
#pragma unroll
      for (int k = 0; k < width; ++k) sum[k] += v[k];
    }
  }
}

/// Sums of the groups of the sorted list that are of one token; a block a group.
template <class T>
__global__ void __launch_bounds__(threads)
    group_kernel(const EmbeddingBackward call, const std::uint32_t* __restrict__ keys, const std::int32_t* __restrict__ positions, float* __restrict__ sums) {
  const std::int64_t first = std::int64_t(blockIdx.x) * group_size, last = first + group_size;
  if (keys[first] != keys[last - 1] || keys[first] >= call.vocabulary) return;
  for (std::int64_t i = threadIdx.x * width; i < call.columns; i += threads * width) {
    float sum[width] = {};
    add_rows<T>(call, positions, i, first, last, sum);
    store8(sums + blockIdx.x * call.columns + i, pack<float>(sum));
  }
}

/// A row of dtable: Σ over its occurrences [first, last) of the sorted list, in which the token's order is kept: those before its first whole
/// group, the groups, those after. `sums`: of the groups.
template <class T, class Out>
__device__ void write_row(const EmbeddingBackward& call, const std::int32_t* __restrict__ positions, const float* __restrict__ sums, bool vectors, Out* to,
                          std::int64_t first, std::int64_t last) {
  const auto* dout = static_cast<const T*>(call.dout);
  if (vectors && first == last) {  // whole sectors a store: most rows of a large vocabulary do not occur
    constexpr int elements = 16 / sizeof(Out);
    for (std::int64_t i = threadIdx.x * elements; i < call.columns; i += threads * elements) *reinterpret_cast<float4*>(to + i) = make_float4(0, 0, 0, 0);
    return;
  }
  if (!vectors) {
    for (std::int64_t i = threadIdx.x; i < call.columns; i += threads) {
      float sum = call.accumulate ? widen(to[i]) : 0.0F;
      for (std::int64_t at = first; at < last; ++at) sum += widen(dout[positions[at] * call.columns + i]);
      to[i] = narrow<Out>(sum);
    }
    return;
  }
  const std::int64_t groups = last / group_size, group = min((first + group_size - 1) / group_size, groups);
  const bool any = group < groups;
  for (std::int64_t i = threadIdx.x * width; i < call.columns; i += threads * width) {
    float sum[width] = {};
    if (call.accumulate) unpack(load8(to + i), sum);
    add_rows<T>(call, positions, i, first, any ? group * group_size : last, sum);
    if (any) {
      add_groups(sums, call.columns, i, group, groups, sum);
      add_rows<T>(call, positions, i, groups * group_size, last, sum);
    }
    store8(to + i, pack<Out>(sum));
  }
}

/// A block some rows of the table: their places in the sorted list are searched side by side.
template <class T, class Out>
__global__ void __launch_bounds__(threads)
    gather_kernel(const EmbeddingBackward call, const std::uint32_t* __restrict__ keys, const std::int32_t* __restrict__ positions,
                  const float* __restrict__ sums, bool vectors, Out* dtable) {
  __shared__ std::int64_t begin[rows_a_block + 1];
  const std::int64_t row0 = std::int64_t(blockIdx.x) * rows_a_block;
  if (threadIdx.x <= rows_a_block) begin[threadIdx.x] = lower_bound(keys, call.count, static_cast<std::uint32_t>(row0 + threadIdx.x));
  __syncthreads();
  for (int i = 0; i < rows_a_block && row0 + i < call.vocabulary; ++i) {
    if (begin[i] == begin[i + 1] && call.accumulate) continue;
    write_row<T>(call, positions, sums, vectors, dtable + (row0 + i) * call.columns, begin[i], begin[i + 1]);
  }
}

constexpr std::size_t alignment = 256;
std::size_t padded(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

std::size_t sort_bytes(std::int64_t count) {
  std::size_t bytes = 0;
  check(cub::DeviceRadixSort::SortPairs<std::uint32_t, std::int32_t>(nullptr, bytes, nullptr, nullptr, nullptr, nullptr, static_cast<int>(count), 0, 32),
        "embedding_backward");
  return bytes;
}

/// Bits that the largest key needs.
int bits_of(std::int64_t vocabulary) {
  int bits = 1;
  while ((vocabulary >> bits) != 0) ++bits;
  return bits;
}

}  // namespace

void embedding(cudaStream_t stream, const std::int32_t* tokens, std::int64_t count, const void* table, std::int64_t vocabulary, std::int64_t columns,
               Element type, void* out) {
  if (count == 0 || columns == 0) return;
  with_floating("embedding", type, [&](auto tag) {
    using T = decltype(tag);
    const bool vectors = columns % width == 0 && aligned(table) && aligned(out);
    lookup_kernel<T><<<grid(count), threads, 0, stream>>>(tokens, static_cast<const T*>(table), vocabulary, columns, vectors, static_cast<T*>(out));
  });
  check_launch("embedding");
}

std::size_t embedding_backward_scratch(std::int64_t count, std::int64_t columns) {
  return 4 * padded(static_cast<std::size_t>(count) * sizeof(std::int32_t)) + padded(sort_bytes(count)) +
         padded(static_cast<std::size_t>(count / group_size * columns) * sizeof(float));
}

void embedding_backward(cudaStream_t stream, const EmbeddingBackward& call) {
  if (call.columns == 0 || call.vocabulary == 0) return;
  const std::size_t part = padded(static_cast<std::size_t>(call.count) * sizeof(std::int32_t));
  auto* bytes = static_cast<std::byte*>(call.scratch);
  auto* keys = reinterpret_cast<std::uint32_t*>(bytes);
  auto* positions = reinterpret_cast<std::int32_t*>(bytes + part);
  auto* sorted_keys = reinterpret_cast<std::uint32_t*>(bytes + 2 * part);
  auto* sorted_positions = reinterpret_cast<std::int32_t*>(bytes + 3 * part);
  auto* sums = reinterpret_cast<float*>(bytes + 4 * part + padded(sort_bytes(call.count)));
  if (call.count > 0) {
    number_kernel<<<grid(ceil_div(call.count, threads)), threads, 0, stream>>>(call.tokens, call.count, call.vocabulary, keys, positions);
    std::size_t room = sort_bytes(call.count);
    check(cub::DeviceRadixSort::SortPairs(bytes + 4 * part, room, keys, sorted_keys, positions, sorted_positions, static_cast<int>(call.count), 0,
                                          bits_of(call.vocabulary), stream),
          "embedding_backward");
  }
  with_floating("embedding_backward", call.type, [&](auto tag) {
    using T = decltype(tag);
    const bool vectors = call.columns % width == 0 && aligned(call.dout) && aligned(call.dtable) && aligned(call.bf16_dtable);
    const std::int64_t groups = vectors ? call.count / group_size : 0;
    if (groups > 0) group_kernel<T><<<grid(groups), threads, 0, stream>>>(call, sorted_keys, sorted_positions, sums);
    const unsigned blocks = grid(ceil_div(call.vocabulary, rows_a_block));
    if (call.bf16_dtable != nullptr) {
      gather_kernel<T><<<blocks, threads, 0, stream>>>(call, sorted_keys, sorted_positions, sums, vectors, static_cast<BFloat16*>(call.bf16_dtable));
    } else {
      gather_kernel<T><<<blocks, threads, 0, stream>>>(call, sorted_keys, sorted_positions, sums, vectors, call.dtable);
    }
  });
  check_launch("embedding_backward");
}

}  // namespace troupe::cuda
