#pragma once
#include "src/device/cuda/kernels/element.hpp"

namespace troupe::cuda {

/// Uniform in [−size, size); fp32 or bf16. Random data, because a GPU runs faster on zeros.
void random_fill(cudaStream_t stream, void* x, Element type, std::int64_t count, float size, std::uint64_t seed);
/// Uniform in [0, below).
void random_integers(cudaStream_t stream, std::int32_t* x, std::int64_t count, std::int32_t below, std::uint64_t seed);

}  // namespace troupe::cuda
