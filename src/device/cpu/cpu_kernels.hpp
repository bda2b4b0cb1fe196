#pragma once
#include "src/device/cpu/scratch.hpp"
#include "src/device/kernels.hpp"

namespace troupe::cpu {

/// The arithmetic of a CPU; everything is done when a call returns, on the calling thread and torch's intra-operation threads.
/// Any number of threads may call at once. Beside fp32 and bf16, every operation that is not fp8 takes fp64 throughout (weights'
/// gradients and statistics too), so that tests compare this very code with autograd. Element-wise operations may work in place:
/// an output may be one of the inputs. Same inputs and thread count: same bits.
class CpuKernels final : public Kernels {
 public:
  void linear(Stream&, TensorView x, TensorView w, TensorView y) override;
  void linear_backward_input(Stream&, TensorView dy, TensorView w, TensorView dx, bool accumulate) override;
  void linear_backward_weight(Stream&, TensorView dy, TensorView x, TensorView dw, bool accumulate) override;

  void amax(Stream&, TensorView x, float* amax, bool accumulate) override;
  void scale_from_amax(Stream&, const float* amax, DType dtype, float* scale) override;
  void quantize(Stream&, TensorView x, const float* scale, TensorView out, Float8Counts* counts) override;
  void quantize_by_powers(Stream&, TensorView x, Float8Scaling by, TensorView scales, TensorView out, Float8Counts* counts) override;
  void linear_fp8(Stream&, Float8View x, Float8View w, TensorView y) override;
  void linear_fp8_backward_input(Stream&, Float8View dy, Float8View w, TensorView dx, bool accumulate) override;
  void linear_fp8_backward_weight(Stream&, Float8View dy, Float8View x, TensorView dw, bool accumulate) override;

  void rms_norm(Stream&, TensorView x, TensorView w, double eps, TensorView y, TensorView rstd) override;
  void rms_norm_backward(Stream&, TensorView dy, TensorView x, TensorView w, TensorView rstd, TensorView dx, bool accumulate_dx, TensorView dw,
                         bool accumulate_dw) override;
  void rotary(Stream&, TensorView x, TensorView table, bool inverse) override;
  void attention(Stream&, TensorView q, TensorView k, TensorView v, double scale, TensorView out, TensorView lse, TensorView starts) override;
  void attention_backward(Stream&, TensorView dout, TensorView q, TensorView k, TensorView v, TensorView out, TensorView lse, double scale, TensorView dq,
                          TensorView dk, TensorView dv, TensorView starts) override;
  void swiglu(Stream&, TensorView gate, TensorView up, TensorView out) override;
  void swiglu_backward(Stream&, TensorView dout, TensorView gate, TensorView up, TensorView dgate, TensorView dup) override;
  void add(Stream&, TensorView a, TensorView b, TensorView out) override;
  void embedding(Stream&, TensorView tokens, TensorView table, TensorView out) override;
  void embedding_backward(Stream&, TensorView tokens, TensorView dout, TensorView dtable, bool accumulate) override;
  void cross_entropy(Stream&, TensorView logits, TensorView labels, double grad_scale, VerdictSums* sums) override;

  void fill(Stream&, TensorView x, double value) override;
  void cast(Stream&, TensorView from, TensorView to) override;
  void sum_squares(Stream&, TensorView x, double* sum) override;
  void decide(Stream&, const VerdictSums* sums, double world, double expected_tag, double nominal_tokens, double max_norm, const HaltWord* halt,
              Verdict* verdict) override;
  void adamw(Stream&, TensorView parameter, TensorView gradient, TensorView first, TensorView second, std::int64_t* count, const AdamWStep& step,
             const Verdict* verdict) override;
  void average(Stream&, TensorView parameter, TensorView average, double decay, const Verdict* verdict) override;

 private:
  ScratchOfThreads scratch_;
};

}  // namespace troupe::cpu
