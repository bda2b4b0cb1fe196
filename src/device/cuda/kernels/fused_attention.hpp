#pragma once
#include <memory>

#include "src/device/cuda/kernels/attention.hpp"

namespace troupe::cuda {

/// Attention by cuDNN's fused kernels (through its front end), reading and writing the caller's memory in place: strided q, k, v, dq, dk, dv,
/// native grouped heads, nothing allocated. One instance a device, any one thread at a time. A plan is made at the first call of a
/// shape and kept; that call blocks the host for up to a second. Throws std::runtime_error with cuDNN's own words.
class FusedAttention {
 public:
  FusedAttention();
  ~FusedAttention();
  FusedAttention(const FusedAttention&) = delete;
  FusedAttention& operator=(const FusedAttention&) = delete;

  /// All keys up to a query's own, bf16, head size a multiple of 8 up to 128, more than one token, 16-byte aligned, strides multiples of 8, compute
  /// capability 8.0 or newer.
  [[nodiscard]] static bool takes(const Attention& call);

  /// Bytes that `forward` or `backward` of this shape needs; makes the plan.
  [[nodiscard]] std::size_t workspace(const Attention& call);
  [[nodiscard]] std::size_t backward_workspace(const AttentionBackward& call, bool deterministic);

  void forward(cudaStream_t stream, const Attention& call, void* workspace);
  /// By default dq is summed in any order. `deterministic` repeats bit for bit: cuDNN then stores the scores' gradients, so heads are
  /// taken in slices that need at most 1 GiB of workspace each.
  void backward(cudaStream_t stream, const AttentionBackward& call, bool deterministic, void* workspace);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace troupe::cuda
