#include "benchmarks/cuda_random.hpp"
#include "src/device/cuda/kernels/dispatch.cuh"

namespace troupe::cuda {
namespace {

/// A counter hashed (Wang's integer hash, twice): independent of the launch.
__device__ float uniform(std::uint64_t i) {
  auto x = static_cast<std::uint32_t>(i * 0x9e3779b97f4a7c15ULL >> 32);
#pragma unroll
  for (int round = 0; round < 2; ++round) x = (x ^ 61U ^ (x >> 16)) * 9U, x = (x ^ (x >> 4)) * 0x27d4eb2dU, x ^= x >> 15;
  return static_cast<float>(x) * 4.6566129e-10F - 1.0F;
}

template <class T>
__global__ void random_kernel(T* x, std::int64_t count, float size, std::uint64_t seed) {
  for (std::int64_t i = blockIdx.x * std::int64_t(blockDim.x) + threadIdx.x; i < count; i += std::int64_t(gridDim.x) * blockDim.x) {
    x[i] = narrow<T>(size * uniform(static_cast<std::uint64_t>(i) + (seed << 40)));
  }
}

__global__ void random_integers_kernel(std::int32_t* x, std::int64_t count, std::int32_t below, std::uint64_t seed) {
  for (std::int64_t i = blockIdx.x * std::int64_t(blockDim.x) + threadIdx.x; i < count; i += std::int64_t(gridDim.x) * blockDim.x) {
    x[i] = static_cast<std::int32_t>((uniform(static_cast<std::uint64_t>(i) + (seed << 40)) * 0.5F + 0.5F) * static_cast<float>(below)) % below;
  }
}

}  // namespace

void random_fill(cudaStream_t stream, void* x, Element type, std::int64_t count, float size, std::uint64_t seed) {
  with_floating("random_fill", type, [&](auto tag) { random_kernel<<<4096, 256, 0, stream>>>(static_cast<decltype(tag)*>(x), count, size, seed); });
  check_launch("random_fill");
}

void random_integers(cudaStream_t stream, std::int32_t* x, std::int64_t count, std::int32_t below, std::uint64_t seed) {
  random_integers_kernel<<<256, 256, 0, stream>>>(x, count, below, seed);
  check_launch("random_integers");
}

}  // namespace troupe::cuda
