#pragma once
#include <cstdint>
#include <stdexcept>

#include "src/device/lane.hpp"
#include "src/device/tensor_view.hpp"
#include "src/device/verdict.hpp"

namespace troupe {

/// What shares one scale: the whole tensor, each row of a matrix, or each column.
enum class Float8Scaling : std::uint8_t { tensor, rows, columns };

/// A value in fp8 with its scales: value ≈ data / scale. data: e4m3 or e5m2; scale: fp32 in device memory, one, or one a row or column.
struct Float8View {
  TensorView data;
  const float* scale = nullptr;
  Float8Scaling scaling = Float8Scaling::tensor;
};

/// Hyper-parameters of one AdamW step; torch.optim.AdamW's formula (decoupled decay, bias correction, eps outside the root).
struct AdamWStep {
  double learning_rate, beta1, beta2, eps, weight_decay;
  bool decoupled = true;  ///< false: Adam (decay added to the gradient)
};

/// The device's arithmetic, one function an operation and direction, on views that the caller owns: nothing allocates what
/// outlives the call, nothing synchronises. Put on `stream` and called by a lane's thread only. Contiguous row-major views.
/// T: tokens = rows × sequence; activations fp32 or bf16 (one type in a call); gradients of weights fp32.
/// Shapes are checked; a mismatch throws std::invalid_argument naming operation and shapes.
class Kernels {
 public:
  virtual ~Kernels() = default;

  // --- linear: y = x wᵀ ---
  virtual void linear(Stream&, TensorView x /*[T,K]*/, TensorView w /*[N,K]*/, TensorView y /*[T,N]*/) = 0;
  /// dx (+)= dy w
  virtual void linear_backward_input(Stream&, TensorView dy, TensorView w, TensorView dx, bool accumulate) = 0;
  /// dw (+)= dyᵀ x; dw fp32 [N,K]
  virtual void linear_backward_weight(Stream&, TensorView dy, TensorView x, TensorView dw, bool accumulate) = 0;

  // --- fp8, tensor-wise dynamic scaling as torchao's: scale = fmax / max(amax, 1e-12), saturating casts ---
  /// *amax = max |x|, or max(*amax, max |x|) if accumulate. NaN propagates. x fp32 or bf16.
  virtual void amax(Stream&, TensorView x, float* amax, bool accumulate) = 0;
  /// *scale = fmax(dtype) / max(*amax, 1e-12); finite for every finite amax
  virtual void scale_from_amax(Stream&, const float* amax, DType dtype, float* scale) = 0;
  /// out = saturate(x × *scale), round to nearest even; out: e4m3 or e5m2, same shape. Adds to *counts, if given.
  virtual void quantize(Stream&, TensorView x, const float* scale, TensorView out, Float8Counts* counts) = 0;
  /// The cast of the row-wise recipes, amax included: scale = 2^⌊log2(fmax / max(amax, 1e-12))⌋, one for each row of x [R,C] (amax over the
  /// columns), each column, or the tensor; scales: fp32 [R], [C] or [1]. Then as quantize. Source: torchao, round_scales_to_power_of_2.
  /// A device that has none refuses with std::logic_error.
  virtual void quantize_by_powers(Stream&, TensorView x, Float8Scaling by, TensorView scales, TensorView out, Float8Counts* counts);
  /// y = (x wᵀ) / (sx sw); x, w e4m3; fp32 accumulation. Scales must be constant along the inner dimension of a product: here x and w
  /// by rows (or tensor), in backward_input dy by rows and w by columns, in backward_weight both by columns.
  virtual void linear_fp8(Stream&, Float8View x, Float8View w, TensorView y) = 0;
  /// dx (+)= (dy w) / (sdy sw); dy e5m2, or e4m3 in the row-wise recipes
  virtual void linear_fp8_backward_input(Stream&, Float8View dy, Float8View w, TensorView dx, bool accumulate) = 0;
  virtual void linear_fp8_backward_weight(Stream&, Float8View dy, Float8View x, TensorView dw, bool accumulate) = 0;

  // --- the rest of a block ---
  /// y = x / √(mean x² + eps) ⊙ w over the last dimension; rstd: fp32 [T]
  virtual void rms_norm(Stream&, TensorView x, TensorView w /*[D]*/, double eps, TensorView y, TensorView rstd) = 0;
  virtual void rms_norm_backward(Stream&, TensorView dy, TensorView x, TensorView w, TensorView rstd, TensorView dx, bool accumulate_dx,
                                 TensorView dw /*fp32 [D]*/, bool accumulate_dw) = 0;
  /// Rotates pairs (2i, 2i+1) of x [T, heads, d] in place; table fp32 [S, d/2, 2] of (cos, sin); position = token mod S. inverse: the backward.
  virtual void rotary(Stream&, TensorView x, TensorView table, bool inverse) = 0;
  /// Causal softmax(q kᵀ scale) v. q, out [B,S,H,d]; k, v [B,S,KV,d], H a multiple of KV; lse fp32 [B,H,S]. starts: i32 [B,S], the first key that each
  /// query sees, which never falls from one query to the next (where its document begins); no data: key 0. What a query does not see cannot change its row
  /// by a bit, unless it is not finite.
  virtual void attention(Stream&, TensorView q, TensorView k, TensorView v, double scale, TensorView out, TensorView lse, TensorView starts = {}) = 0;
  virtual void attention_backward(Stream&, TensorView dout, TensorView q, TensorView k, TensorView v, TensorView out, TensorView lse, double scale,
                                  TensorView dq, TensorView dk, TensorView dv, TensorView starts = {}) = 0;
  /// out = silu(gate) ⊙ up
  virtual void swiglu(Stream&, TensorView gate, TensorView up, TensorView out) = 0;
  virtual void swiglu_backward(Stream&, TensorView dout, TensorView gate, TensorView up, TensorView dgate, TensorView dup) = 0;
  /// out = a + b
  virtual void add(Stream&, TensorView a, TensorView b, TensorView out) = 0;
  /// tokens i32 [T]; an id outside the table throws std::out_of_range
  virtual void embedding(Stream&, TensorView tokens, TensorView table /*[V,D]*/, TensorView out /*[T,D]*/) = 0;
  /// dtable (+)= scatter-add; fp32 [V,D]; in token order, so it repeats bit for bit
  virtual void embedding_backward(Stream&, TensorView tokens, TensorView dout, TensorView dtable, bool accumulate) = 0;
  /// Cross entropy in fp32 over labels ≥ 0 (negative: ignored). Adds Σ −log p, the count of valid labels and of non-finite losses
  /// to sums.loss, sums.tokens, sums.bad; overwrites logits [T,V] with (softmax − onehot) × grad_scale, zero in ignored rows.
  virtual void cross_entropy(Stream&, TensorView logits, TensorView labels /*i32 [T]*/, double grad_scale, VerdictSums* sums) = 0;

  // --- memory, shards, optimizer ---
  virtual void fill(Stream&, TensorView x, double value) = 0;
  /// Converts between fp32, bf16 and fp64, or copies equal types; same shape.
  virtual void cast(Stream&, TensorView from, TensorView to) = 0;
  /// *sum += Σ x²; x fp32; fixed order
  virtual void sum_squares(Stream&, TensorView x, double* sum) = 0;
  virtual void decide(Stream&, const VerdictSums* sums, double world, double expected_tag, double nominal_tokens, double max_norm, const HaltWord* halt,
                      Verdict* verdict) = 0;
  /// In place on fp32 views of one shape; *count (steps taken by this parameter) is advanced. Nothing happens unless verdict->outcome is commit.
  virtual void adamw(Stream&, TensorView parameter, TensorView gradient, TensorView first, TensorView second, std::int64_t* count, const AdamWStep& step,
                     const Verdict* verdict) = 0;
  /// average += (1 − decay) (parameter − average), on fp32 views of one shape; nothing unless verdict->outcome is commit.
  /// A device that has none refuses with std::logic_error.
  virtual void average(Stream&, TensorView parameter, TensorView average, double decay, const Verdict* verdict);
};

inline void Kernels::quantize_by_powers(Stream&, TensorView, Float8Scaling, TensorView, TensorView, Float8Counts*) {
  throw std::logic_error("float8.recipe_name: this device has no row-wise casts; use tensorwise");
}
inline void Kernels::average(Stream&, TensorView, TensorView, double, const Verdict*) {
  throw std::logic_error("optimizer.ema_decay: this device does not average weights; unset it");
}

}  // namespace troupe
