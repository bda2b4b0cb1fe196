#pragma once
#include "src/device/cuda/kernels/element.hpp"

namespace troupe::cuda {

/// out = silu(gate) ⊙ up, silu(g) = g σ(g); in fp32, one rounding (K4). gate and up may be the halves of one [rows, 2 columns] buffer:
/// `stride` elements between their rows; out is contiguous. 3 × 2 bytes an element of out.
struct Swiglu {
  const void* gate;
  const void* up;
  void* out;  ///< [rows, columns]
  Element type;
  std::int64_t rows, columns, stride;
  float* amax = nullptr;  ///< raised to max |out as stored|; the caller zeroes it before
};
void swiglu(cudaStream_t stream, const Swiglu& call);

/// dgate = dout up σ (1 + gate (1 − σ)), dup = dout gate σ (K5). With `transposed`, also silu(gate) ⊙ up once more, rounded as the forward
/// stored it, cast with the scale of *out_amax and written as e4m3 [columns, rows]: the operand of the next weight gradient, which then need
/// not be kept from the forward. 5 × 2 bytes an element of dout, + 1 with `transposed`.
struct SwigluBackward {
  const void* dout;  ///< [rows, columns]
  const void* gate;  ///< `stride` elements between rows
  const void* up;
  void* dgate;  ///< `gradient_stride` elements between rows; may be gate
  void* dup;
  Element type;
  std::int64_t rows, columns, stride, gradient_stride;
  float* amax = nullptr;    ///< raised to max over dgate and dup as stored; the caller zeroes it before
  bool amax_apart = false;  ///< dup raises up_amax, and `amax` is of dgate alone
  float* up_amax = nullptr;
  const float* out_amax = nullptr;  ///< of the forward's out; needed with `transposed`
  void* transposed = nullptr;       ///< e4m3 [columns, rows]
};
void swiglu_backward(cudaStream_t stream, const SwigluBackward& call);

}  // namespace troupe::cuda
