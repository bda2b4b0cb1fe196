#pragma once
#include "src/device/cuda/kernels/element.hpp"
#include "src/device/verdict.hpp"

namespace troupe::cuda {

// Tensor-wise fp8: value ≈ code / scale, scale = fmax(format) / max(amax, 1e-12) divided in fp64 (torchao's formula). Casts saturate,
// round to nearest even and keep NaN. An amax is kept as a non-negative fp32 whose bits are maxed as integers: exact in any order, NaN wins.

/// *amax = max |x|, or max(*amax, max |x|) if accumulate; x fp32 or bf16.
void amax(cudaStream_t stream, const void* x, Element type, std::int64_t count, float* amax, bool accumulate);

/// scale[i] = fmax(format) / max(amax[i], 1e-12) and, unless null, inverse[i] = 1 / scale[i]: what a matrix product multiplies by.
/// One launch for all scalars of a step (K14).
void scale_from_amax(cudaStream_t stream, const float* amax, Element format, float* scale, float* inverse, std::int64_t count = 1);

/// inverse[0] = 1 / *a, inverse[4] = 1 / *b: 16 bytes apart, because matrix products want their scales so aligned. inverse: 8 floats.
void inverse_scales(cudaStream_t stream, const float* a, const float* b, float* inverse);

/// out = saturate(x × *scale); x fp32 or bf16, out of `format`. *counts, unless null, is added to: values beyond the format, and values that are
/// not finite after scaling.
void quantize(cudaStream_t stream, const void* x, Element type, const float* scale, void* out, Element format, std::int64_t count,
              Float8Counts* counts = nullptr);

}  // namespace troupe::cuda
