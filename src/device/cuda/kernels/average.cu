#include "src/device/cuda/kernels/average.hpp"
#include "src/device/cuda/kernels/dispatch.cuh"

namespace troupe::cuda {
namespace {

constexpr int threads = 256;

__global__ void average_kernel(const float* __restrict__ parameter, float* average, std::int64_t count, float share, const Verdict* verdict) {
  if (verdict->outcome != VerdictOutcome::commit) return;
  for (std::int64_t i = blockIdx.x * std::int64_t(threads) + threadIdx.x; i < count; i += std::int64_t(gridDim.x) * threads)
    average[i] += share * (parameter[i] - average[i]);
}

}  // namespace

void average(cudaStream_t stream, const float* parameter, float* average, std::int64_t count, double decay, const Verdict* verdict) {
  if (count == 0) return;
  const std::int64_t blocks = ceil_div(count, threads * 4), most = std::int64_t(multiprocessors()) * 16;
  average_kernel<<<grid(blocks < most ? blocks : most), threads, 0, stream>>>(parameter, average, count, static_cast<float>(1.0 - decay), verdict);
  check_launch("average");
}

}  // namespace troupe::cuda
