#pragma once
// Sums and maxima over a warp or a block, always in the same order. Device code only.
#include <cstdint>

#include "src/device/cuda/kernels/vector.cuh"

namespace troupe::cuda {

struct Sum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Largest {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};

/// Every lane gets the result.
template <class Op, class T>
__device__ T over_warp(T value, Op op = {}) {
#pragma unroll
  for (int offset = lanes / 2; offset > 0; offset /= 2) value = op(value, __shfl_xor_sync(0xffffffffU, value, offset));
  return value;
}

/// Every thread gets the result. `room`: shared, one element a warp. Ends with the room free for another call.
template <class Op, int threads, class T>
__device__ T over_block(T value, T* room, Op op = {}) {
  constexpr int warps = threads / lanes;
  value = over_warp(value, op);
  if constexpr (warps == 1) return value;
  if (threadIdx.x % lanes == 0) room[threadIdx.x / lanes] = value;
  __syncthreads();
  T result = room[0];
#pragma unroll
  for (int i = 1; i < warps; ++i) result = op(result, room[i]);
  __syncthreads();
  return result;
}

/// *amax = max(*amax, found) for a block of any size that is a multiple of 32: one atomic a warp that found more than what is there.
__device__ inline void raise_amax(float* amax, std::uint32_t found) {
  found = over_warp<Largest>(found);
  if (threadIdx.x % lanes != 0) return;
  auto* bits = reinterpret_cast<std::uint32_t*>(amax);
  if (found > *reinterpret_cast<volatile std::uint32_t*>(bits)) atomicMax(bits, found);
}

}  // namespace troupe::cuda
