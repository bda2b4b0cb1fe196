#pragma once
#include "src/device/cuda/kernels/element.hpp"
#include "src/device/verdict.hpp"

namespace troupe::cuda {

// Fp8 with a scale for each row of a matrix, each column, or all of it, a power of two: torchao's row-wise recipes. Correct before fast: what they
// cast is multiplied in bf16, which holds a code over a power of two exactly, so they save nothing on a GPU but the accuracy question.

/// What shares a scale.
enum class Lines : std::uint8_t { all, rows, columns };

/// A matrix of codes, or one that becomes codes.
struct LineMatrix {
  const void* x;
  Element type;
  std::int64_t rows, columns;
  Lines by;
};

/// scales[line] = 2^⌊log2(fmax / max(amax, 1e-12))⌋ of the line, then out = saturate(x × scale) in `format`; x fp32 or bf16. *counts, unless null, is
/// added to: values beyond the format, and values that are not finite after scaling.
void quantize_lines(cudaStream_t stream, const LineMatrix& x, float* scales, void* out, Element format, Float8Counts* counts);

/// out = code / scale of its line, bf16; x e4m3 or e5m2. Exact where scales are powers of two and the quotient is no smaller than bf16's least.
void dequantize_lines(cudaStream_t stream, const LineMatrix& x, const float* scales, void* out);

}  // namespace troupe::cuda
