#pragma once
#include <cuda_runtime_api.h>

#include <vector>

#include "src/device/cuda/kernels/fused_attention.hpp"
#include "src/device/cuda/kernels/optimizer.hpp"
#include "src/device/cuda/kernels/product.hpp"
#include "src/device/cuda/scratch.hpp"
#include "src/device/draws_values.hpp"
#include "src/device/fused_kernels.hpp"

namespace troupe::cuda {

/// The arithmetic of a GPU: kernels of src/device/cuda/kernels, cuBLASLt and cuDNN. Calls put work on the stream and return; one thread
/// calls at a time (the issuer, or the main thread before and after the lanes). Activations fp32 or bf16.
/// With `deterministic` every call repeats bit for bit; without it attention's backward adds in any order.
class CudaKernels final : public Kernels, public FusedKernels, public DrawsValues {
 public:
  /// Without `deterministic` it begins with the products' algorithms that earlier runs have chosen (ChoiceCache), and leaves its own there.
  CudaKernels(int device, bool deterministic);
  ~CudaKernels() override;
  /// Bytes that calls have made this object take, and keeps.
  [[nodiscard]] std::size_t scratch_bytes() const noexcept;

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

  void cast_fp8(Stream&, TensorView x, const CastTarget& to) override;
  void rms_norm_cast(Stream&, TensorView x, TensorView w, double eps, TensorView y, bool keeps_y, TensorView rstd, const CastTarget& to) override;
  void swiglu_cast(Stream&, TensorView gate, TensorView up, TensorView out, const CastTarget& to) override;
  void linear_fp8_add(Stream&, Float8View x, Float8View w, TensorView residual, TensorView out) override;
  void cast_fp8_with_amax(Stream&, TensorView x, const CastTarget& to) override;
  void rms_norm_backward_amax(Stream&, TensorView dy, TensorView x, TensorView w, TensorView rstd, TensorView dx, bool accumulate_dx, TensorView dw,
                              bool accumulate_dw, float* amax) override;
  void swiglu_backward_amax(Stream&, TensorView dout, TensorView gate, TensorView up, TensorView dgate, TensorView dup, float* dgate_amax,
                            float* dup_amax) override;
  void rotary_amax(Stream&, TensorView x, TensorView table, bool inverse, float* amax) override;
  void adamw_all(Stream&, std::span<const AdamWShard> shards, const Verdict* verdict) override;
  void copy_shards(Stream&, std::span<const ShardCopy> shards, Float8Counts* counts) override;
  void scales_from_amaxes(Stream&, const float* amaxes, DType dtype, float* scales, std::size_t count) override;

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
  void draw(Stream&, TensorView values, const NormalDraw& draw, std::uint64_t first) override;

 private:
  /// The other layout of codes, [columns, rows], which the tensor cores want in the backward: kept until the codes are written again.
  struct Turned {
    const std::byte* codes = nullptr;
    std::size_t bytes = 0;
    cudaStream_t stream = nullptr;
    const std::byte* data = nullptr;
    [[nodiscard]] bool holds(const TensorView& view, cudaStream_t on) const noexcept { return codes == view.data && bytes == view.bytes() && stream == on; }
  };
  /// A norm that the cast does on the way.
  struct NormOf {
    const TensorView& weight;
    const TensorView& rstd;
  };
  /// Codes from a value whose amax is known, or from its norm; the other layout as well where a gradient is cast.
  void cast_with_amax(cudaStream_t stream, const TensorView& x, const CastTarget& to, const NormOf* norm = nullptr);
  void written(const TensorView& codes);
  static void zero(cudaStream_t stream, float* amax);
  void norm(cudaStream_t stream, const TensorView& x, const TensorView& w, double eps, const TensorView& y, const TensorView& rstd, float* amax);
  void gated(cudaStream_t stream, const TensorView& gate, const TensorView& up, const TensorView& out, float* amax);
  void float8_forward(Stream& stream, const Float8View& x, const Float8View& w, const TensorView& y, const void* residual);
  /// d (+)= a b of codes with a scale by lines on either side, through bf16; `transposed` as in Product.
  struct LineOperand {
    const Float8View& value;
    bool transposed;
  };
  void multiply_lines(cudaStream_t stream, const LineOperand& a, const LineOperand& b, const TensorView& d, bool accumulate);
  [[nodiscard]] cudaStream_t on(const Stream& stream) const;
  void multiply(cudaStream_t stream, const Product& product);

  const int device_;
  const bool deterministic_;
  ScratchOfStreams scratch_, workspaces_, turned_gradients_, turned_values_;
  Turned gradient_, value_;  ///< the newest of each
  Products products_;
  FusedAttention fused_attention_;
  std::vector<AdamWTensor> adamw_;  ///< kept, so that a step allocates nothing
  std::vector<ShardCast> copies_;   ///< as well
};

}  // namespace troupe::cuda
