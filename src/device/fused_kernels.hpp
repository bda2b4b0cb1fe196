#pragma once
#include "src/device/kernels.hpp"

namespace troupe {

/// Where a value is cast to fp8: codes of its shape (e4m3 or e5m2) and its two scalars, in device memory.
struct CastTarget {
  TensorView codes;
  float* amax = nullptr;
  float* scale = nullptr;
};

/// Operations that a device may do in one go, beside Kernels: one object is both. Each does what the named operations of Kernels do one
/// after the other, to the same rounding but for sums in another order; whoever has none is called operation by operation.
class FusedKernels {
 public:
  virtual ~FusedKernels() = default;
  /// amax, scale_from_amax, quantize
  virtual void cast_fp8(Stream&, TensorView x, const CastTarget& to) = 0;
  /// rms_norm, then cast_fp8 of y
  virtual void rms_norm_cast(Stream&, TensorView x, TensorView w, double eps, TensorView y, TensorView rstd, const CastTarget& to) = 0;
  /// swiglu, then cast_fp8 of out
  virtual void swiglu_cast(Stream&, TensorView gate, TensorView up, TensorView out, const CastTarget& to) = 0;
  /// out = residual + x wᵀ, rounded once
  virtual void linear_fp8_add(Stream&, Float8View x, Float8View w, TensorView residual, TensorView out) = 0;
};

}  // namespace troupe
