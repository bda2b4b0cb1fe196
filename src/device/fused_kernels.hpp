#pragma once
#include <span>

#include "src/device/kernels.hpp"

namespace troupe {

/// Where a value is cast to fp8: codes of its shape (e4m3 or e5m2) and its two scalars, in device memory.
struct CastTarget {
  TensorView codes;
  float* amax = nullptr;
  float* scale = nullptr;
  Float8Counts* counts = nullptr;  ///< unless null: added to, where the value's largest is not finite; of infinities alone at least one
};

/// One parameter's part of an optimizer step over many; views as Kernels::adamw's.
struct AdamWShard {
  TensorView parameter, gradient, first, second;
  std::int64_t* count = nullptr;
  AdamWStep step{};
  float* amax = nullptr;  ///< unless null: max |parameter| after the step; left alone where nothing happens
};

/// Rows of a master and where they are put: fp8 with *scale, or without one a floating type.
struct ShardCopy {
  TensorView from, to;
  const float* scale = nullptr;
};

/// Operations that a device may do in one go, beside Kernels: one object is both. Each does what the named operations of Kernels do one
/// after the other, to the same rounding but for sums in another order; whoever has none is called operation by operation.
class FusedKernels {
 public:
  virtual ~FusedKernels() = default;
  /// amax, scale_from_amax, quantize
  virtual void cast_fp8(Stream&, TensorView x, const CastTarget& to) = 0;
  /// rms_norm, then cast_fp8 of y; without `keeps_y` nobody reads y, and it may be left unwritten
  virtual void rms_norm_cast(Stream&, TensorView x, TensorView w, double eps, TensorView y, bool keeps_y, TensorView rstd, const CastTarget& to) = 0;
  /// swiglu, then cast_fp8 of out
  virtual void swiglu_cast(Stream&, TensorView gate, TensorView up, TensorView out, const CastTarget& to) = 0;
  /// out = residual + x wᵀ, rounded once
  virtual void linear_fp8_add(Stream&, Float8View x, Float8View w, TensorView residual, TensorView out) = 0;

  /// scale_from_amax and quantize: to.amax holds max |x| already, as one of the next three found it.
  virtual void cast_fp8_with_amax(Stream&, TensorView x, const CastTarget& to) = 0;
  /// rms_norm_backward, then amax of dx
  virtual void rms_norm_backward_amax(Stream&, TensorView dy, TensorView x, TensorView w, TensorView rstd, TensorView dx, bool accumulate_dx, TensorView dw,
                                      bool accumulate_dw, float* amax) = 0;
  /// swiglu_backward, then amax of dgate and of dup; null: of that one not
  virtual void swiglu_backward_amax(Stream&, TensorView dout, TensorView gate, TensorView up, TensorView dgate, TensorView dup, float* dgate_amax,
                                    float* dup_amax) = 0;
  /// rotary, then amax of x
  virtual void rotary_amax(Stream&, TensorView x, TensorView table, bool inverse, float* amax) = 0;

  /// adamw of each, and amax of those that ask for it
  virtual void adamw_all(Stream&, std::span<const AdamWShard> shards, const Verdict* verdict) = 0;
  /// quantize of each that has a scale, cast of the others
  virtual void copy_shards(Stream&, std::span<const ShardCopy> shards, Float8Counts* counts) = 0;
  /// scale_from_amax of amaxes[i] to scales[i], i < count
  virtual void scales_from_amaxes(Stream&, const float* amaxes, DType dtype, float* scales, std::size_t count) = 0;
};

}  // namespace troupe
