#pragma once
#include "src/device/cuda/kernels/element.hpp"

namespace troupe::cuda {

/// y = x · rstd ⊙ w, rstd = 1 / √(mean x² + eps) over a row (K1). Sums in fp32, one rounding. 2 × 2 bytes an element for bf16.
struct RmsNorm {
  const void* x;  ///< [rows, columns]
  const void* w;  ///< [columns], of x's type
  void* y;        ///< may be x; null: rstd and amax alone, as if it were stored
  float* rstd;    ///< [rows]
  Element type;   ///< fp32 or bf16
  std::int64_t rows, columns;
  float eps;
  float* amax = nullptr;  ///< raised to max |y as stored|; the caller zeroes it before
};
void rms_norm(cudaStream_t stream, const RmsNorm& call);

/// dx = rstd w dy − x rstd³ mean(dy w x) (+ residual), dw (+)= Σ over rows dy x rstd (K6).
/// dw is summed in a fixed order, so it repeats bit for bit on one kind of device. 3 × 2 bytes an element, 4 × 2 with a residual.
struct RmsNormBackward {
  const void* dy;
  const void* x;
  const void* w;
  const float* rstd;
  void* dx;                        ///< may be dy or residual
  const void* residual = nullptr;  ///< [rows, columns] added to dx before the rounding; null: nothing (dx itself: accumulation)
  float* dw;                       ///< [columns]
  bool accumulate_dw;
  Element type;
  std::int64_t rows, columns;
  float* amax = nullptr;  ///< raised to max |dx as stored|; the caller zeroes it before
  void* scratch;          ///< rms_norm_backward_scratch(columns) bytes
};
void rms_norm_backward(cudaStream_t stream, const RmsNormBackward& call);
[[nodiscard]] std::size_t rms_norm_backward_scratch(std::int64_t columns);

}  // namespace troupe::cuda
