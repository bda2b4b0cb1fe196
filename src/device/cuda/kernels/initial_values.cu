// Compiled without contraction, as the host's half is (src/model/initialise.cpp).
#include "src/device/cuda/kernels/dispatch.cuh"
#include "src/device/cuda/kernels/initial_values.hpp"

namespace troupe::cuda {
namespace {

constexpr int threads = 256;

__global__ void draw_kernel(float* values, std::int64_t count, NormalDraw draw, std::uint64_t first) {
  for (std::int64_t i = blockIdx.x * std::int64_t(threads) + threadIdx.x; i < count; i += std::int64_t(gridDim.x) * threads) {
    values[i] = value_of(draw, first + static_cast<std::uint64_t>(i));
  }
}

}  // namespace

void draw_values(cudaStream_t stream, float* values, std::int64_t count, const NormalDraw& draw, std::uint64_t first) {
  if (count == 0) return;
  const std::int64_t blocks = ceil_div(count, threads), most = std::int64_t(multiprocessors()) * 16;
  draw_kernel<<<grid(blocks < most ? blocks : most), threads, 0, stream>>>(values, count, draw, first);
  check_launch("draw_values");
}

}  // namespace troupe::cuda
