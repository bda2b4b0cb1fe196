#pragma once
#include "src/device/cuda/kernels/element.hpp"
#include "src/device/normal_draw.hpp"

namespace troupe::cuda {

/// values[i] = value_of(draw, first + i); fp32. About 60 operations of fp64 a value: an H200 makes 8 billion in a tenth of a second.
void draw_values(cudaStream_t stream, float* values, std::int64_t count, const NormalDraw& draw, std::uint64_t first);

}  // namespace troupe::cuda
