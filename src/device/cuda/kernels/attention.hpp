#pragma once
#include "src/device/cuda/kernels/element.hpp"

namespace troupe::cuda {

/// Causal softmax(q kᵀ scale) v. q, out: token s of sequence b, head h, element e at [b · sequence + s] · stride + h · head_size + e;
/// strides in elements, so q, k and v may be parts of one packed buffer. heads is a multiple of kv_heads. lse: fp32 [batch, heads, sequence].
struct Attention {
  const void* q;
  const void* k;
  const void* v;
  void* out;
  float* lse;
  Element type;  ///< fp32 or bf16
  std::int64_t batch, sequence, heads, kv_heads, head_size;
  std::int64_t q_stride, k_stride, v_stride, out_stride;
  float scale;
  const std::int32_t* starts = nullptr;  ///< [batch, sequence], rising: the first key that a query sees; null: key 0. Own kernels only.
};

struct AttentionBackward {
  Attention forward;  ///< as it was called; out and lse are read
  const void* dout;
  void* dq;
  void* dk;
  void* dv;
  std::int64_t dout_stride, dq_stride, dk_stride, dv_stride;
};

/// Own kernels: fp32 and bf16, any head size up to 256, no atomics, so the backward repeats bit for bit. A warp a row of scores: slow.
void plain_attention(cudaStream_t stream, const Attention& call);
/// scratch: plain_attention_scratch(forward) bytes.
void plain_attention_backward(cudaStream_t stream, const AttentionBackward& call, void* scratch);
[[nodiscard]] std::size_t plain_attention_scratch(const Attention& call);

}  // namespace troupe::cuda
