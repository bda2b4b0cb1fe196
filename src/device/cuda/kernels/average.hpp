#pragma once
#include "src/device/cuda/kernels/element.hpp"
#include "src/device/verdict.hpp"

namespace troupe::cuda {

/// average += (1 − decay) (parameter − average); fp32; nothing where *verdict is not commit. 12 bytes an element.
void average(cudaStream_t stream, const float* parameter, float* average, std::int64_t count, double decay, const Verdict* verdict);

}  // namespace troupe::cuda
