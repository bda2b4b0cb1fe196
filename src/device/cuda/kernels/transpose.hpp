#pragma once
#include "src/device/cuda/kernels/element.hpp"
#include "src/device/verdict.hpp"

namespace troupe::cuda {

/// One pass from bf16 or fp32 to fp8 in both layouts (K2): codes [rows, columns] and transposed [columns, rows], either may be null.
/// The scale comes from *amax (float8.hpp's formula); unless null, *scale and *inverse are written for the matrix products.
/// 4 bytes an element for bf16 with both layouts. Vectorised if rows are a multiple of 16 and columns of 8, else element by element.
struct CastTranspose {
  const void* x;  ///< [rows, columns] contiguous
  Element type;
  const float* amax;
  Element format;  ///< e4m3 or e5m2
  std::int64_t rows, columns;
  void* codes = nullptr;
  void* transposed = nullptr;
  float* scale = nullptr;
  float* inverse = nullptr;
  /// Unless null, told of what the cast made not finite. A scale of the value's own amax cuts nothing. With a NaN in it every product is one; of a value
  /// with infinities, whose scale is 0, only those are, and one is counted for all of them.
  Float8Counts* counts = nullptr;
  /// With both, x · rstd ⊙ norm_weight is cast, rounded to x's type as rms_norm stored it: the backward's operand without the stored norm.
  const float* rstd = nullptr;        ///< [rows]
  const void* norm_weight = nullptr;  ///< [columns], of x's type
};
void cast_transpose(cudaStream_t stream, const CastTranspose& call);

/// to [columns, rows] = from [rows, columns] of single bytes (K9): the second layout of fp8 weights. 2 bytes an element.
void transpose_bytes(cudaStream_t stream, const void* from, std::int64_t rows, std::int64_t columns, void* to);

}  // namespace troupe::cuda
