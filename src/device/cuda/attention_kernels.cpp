// Attention: cuDNN's fused kernels where they fit, own kernels elsewhere.
#include "src/device/cuda/arguments.hpp"
#include "src/device/cuda/cuda_kernels.hpp"
#include "src/device/cuda/kernels/attention.hpp"

namespace troupe::cuda {
namespace {

bool alike(const TensorView& a, const TensorView& b) { return a.shape == b.shape && a.dtype == b.dtype; }

bool attention_shapes(const TensorView& q, const TensorView& k, const TensorView& v, const TensorView& lse) {
  return q.shape.rank == 4 && k.shape.rank == 4 && alike(k, v) && q.dtype == k.dtype && Arguments::floating(q.dtype) && q.shape[0] == k.shape[0] &&
         q.shape[1] == k.shape[1] && q.shape[3] == k.shape[3] && k.shape[2] > 0 && q.shape[2] % k.shape[2] == 0 &&
         lse.shape == Shape{q.shape[0], q.shape[2], q.shape[1]} && lse.dtype == DType::f32;
}

bool starts_fit(const TensorView& starts, const TensorView& q) {
  return starts.data == nullptr || (starts.dtype == DType::i32 && starts.shape == Shape{q.shape[0], q.shape[1]});
}

Attention call_of(const TensorView& q, const TensorView& k, const TensorView& v, double scale, const TensorView& out, const TensorView& lse,
                  const TensorView& starts) {
  return {.q = q.data,
          .k = k.data,
          .v = v.data,
          .out = out.data,
          .lse = lse.as<float>(),
          .type = element_of(q.dtype),
          .batch = q.shape[0],
          .sequence = q.shape[1],
          .heads = q.shape[2],
          .kv_heads = k.shape[2],
          .head_size = q.shape[3],
          .q_stride = q.shape[2] * q.shape[3],
          .k_stride = k.shape[2] * k.shape[3],
          .v_stride = v.shape[2] * v.shape[3],
          .out_stride = q.shape[2] * q.shape[3],
          .scale = static_cast<float>(scale),
          .starts = starts.as<const std::int32_t>()};
}

}  // namespace

void CudaKernels::attention(Stream& stream, TensorView q, TensorView k, TensorView v, double scale, TensorView out, TensorView lse, TensorView starts) {
  const Arguments arguments(device_, "attention", "q, out [B,S,H,d], k, v [B,S,KV,d] of one floating type, lse [B,H,S] float32, starts int32 [B,S] or none",
                            {{"q", q}, {"k", k}, {"v", v}, {"out", out}, {"lse", lse}});
  arguments.require(attention_shapes(q, k, v, lse) && alike(q, out) && starts_fit(starts, q));
  const cudaStream_t to = on(stream);
  const Attention call = call_of(q, k, v, scale, out, lse, starts);
  if (!FusedAttention::takes(call)) return plain_attention(to, call);
  const std::size_t bytes = fused_attention_.workspace(call);
  fused_attention_.forward(to, call, scratch_.of(to, bytes + ScratchOfStreams::slack).take<std::byte>(bytes));
}

void CudaKernels::attention_backward(Stream& stream, TensorView dout, TensorView q, TensorView k, TensorView v, TensorView out, TensorView lse, double scale,
                                     TensorView dq, TensorView dk, TensorView dv, TensorView starts) {
  const Arguments arguments(device_, "attention_backward", "q, out, dout, dq [B,S,H,d], k, v, dk, dv [B,S,KV,d] of one floating type, lse [B,H,S] float32",
                            {{"dout", dout}, {"q", q}, {"k", k}, {"v", v}, {"out", out}, {"lse", lse}, {"dq", dq}, {"dk", dk}, {"dv", dv}});
  arguments.require(attention_shapes(q, k, v, lse) && alike(q, out) && alike(q, dout) && alike(q, dq) && alike(k, dk) && alike(k, dv) && starts_fit(starts, q));
  const cudaStream_t to = on(stream);
  const AttentionBackward call{.forward = call_of(q, k, v, scale, out, lse, starts),
                               .dout = dout.data,
                               .dq = dq.data,
                               .dk = dk.data,
                               .dv = dv.data,
                               .dout_stride = q.shape[2] * q.shape[3],
                               .dq_stride = q.shape[2] * q.shape[3],
                               .dk_stride = k.shape[2] * k.shape[3],
                               .dv_stride = k.shape[2] * k.shape[3]};
  const bool fused = FusedAttention::takes(call.forward);
  const std::size_t bytes = fused ? fused_attention_.backward_workspace(call, deterministic_) : plain_attention_scratch(call.forward);
  auto* room = scratch_.of(to, bytes + ScratchOfStreams::slack).take<std::byte>(bytes);
  if (fused) return fused_attention_.backward(to, call, deterministic_, room);
  plain_attention_backward(to, call, room);
}

}  // namespace troupe::cuda
