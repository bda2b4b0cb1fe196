#pragma once
#include "src/device/cuda/kernels/element.hpp"

namespace troupe::cuda {

/// x[0, count) = value; any element type for zero, else fp32, bf16, fp64, i32, i64, u8.
void fill(cudaStream_t stream, void* x, Element type, std::int64_t count, double value);

/// to[i] = from[i], between fp32, bf16 and fp64 (rounded to nearest even), or a copy of equal types.
void cast(cudaStream_t stream, const void* from, Element from_type, void* to, Element to_type, std::int64_t count);

/// out = a + b; fp32 or bf16, sums in fp32. out may be a or b.
void add(cudaStream_t stream, const void* a, const void* b, void* out, Element type, std::int64_t count);

}  // namespace troupe::cuda
