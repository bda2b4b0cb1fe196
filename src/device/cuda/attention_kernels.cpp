// Attention: cuDNN's fused kernels through ATen where they fit, own kernels elsewhere and where every bit must repeat.
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/cuda/CUDAGuard.h>

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

Attention plain_call(const TensorView& q, const TensorView& k, const TensorView& v, double scale, const TensorView& out, const TensorView& lse) {
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
          .scale = static_cast<float>(scale)};
}

at::TensorOptions options_of(const TensorView& view, at::ScalarType type) { return at::TensorOptions().device(at::kCUDA, view.device.index).dtype(type); }

/// [B, S, H, d] in memory, seen as torch's [B, H, S, d].
at::Tensor by_heads(const TensorView& view) {
  return at::from_blob(view.data, {view.shape[0], view.shape[1], view.shape[2], view.shape[3]}, options_of(view, at::kBFloat16)).transpose(1, 2);
}

at::Tensor of_rows(const TensorView& lse) { return at::from_blob(lse.data, {lse.shape[0], lse.shape[1], lse.shape[2], 1}, options_of(lse, at::kFloat)); }

}  // namespace

/// cuDNN 9's fused attention on Hopper and newer: bf16, heads of a width that is a multiple of 8 up to 128.
bool CudaKernels::fused_attention(const TensorView& q) const {
  return !deterministic_ && hopper() && q.dtype == DType::bf16 && q.shape[3] % 8 == 0 && q.shape[3] <= 128 && q.shape[1] > 1;
}

void CudaKernels::attention(Stream& stream, TensorView q, TensorView k, TensorView v, double scale, TensorView out, TensorView lse) {
  const Arguments arguments(device_, "attention", "q, out [B,S,H,d], k, v [B,S,KV,d] of one floating type, lse [B,H,S] float32",
                            {{"q", q}, {"k", k}, {"v", v}, {"out", out}, {"lse", lse}});
  arguments.require(attention_shapes(q, k, v, lse) && alike(q, out));
  const cudaStream_t to = on(stream);
  if (!fused_attention(q)) return plain_attention(to, plain_call(q, k, v, scale, out, lse));
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromExternal(to, static_cast<c10::DeviceIndex>(device_)));
  const auto result = at::_scaled_dot_product_cudnn_attention(by_heads(q), by_heads(k), by_heads(v), {}, true, 0.0, true, false, scale);
  by_heads(out).copy_(std::get<0>(result));
  of_rows(lse).copy_(std::get<1>(result).view({lse.shape[0], lse.shape[1], lse.shape[2], 1}));
}

void CudaKernels::attention_backward(Stream& stream, TensorView dout, TensorView q, TensorView k, TensorView v, TensorView out, TensorView lse, double scale,
                                     TensorView dq, TensorView dk, TensorView dv) {
  const Arguments arguments(device_, "attention_backward", "q, out, dout, dq [B,S,H,d], k, v, dk, dv [B,S,KV,d] of one floating type, lse [B,H,S] float32",
                            {{"dout", dout}, {"q", q}, {"k", k}, {"v", v}, {"out", out}, {"lse", lse}, {"dq", dq}, {"dk", dk}, {"dv", dv}});
  arguments.require(attention_shapes(q, k, v, lse) && alike(q, out) && alike(q, dout) && alike(q, dq) && alike(k, dk) && alike(k, dv));
  const cudaStream_t to = on(stream);
  if (!fused_attention(q)) {
    const AttentionBackward call{.forward = plain_call(q, k, v, scale, out, lse),
                                 .dout = dout.data,
                                 .dq = dq.data,
                                 .dk = dk.data,
                                 .dv = dv.data,
                                 .dout_stride = q.shape[2] * q.shape[3],
                                 .dq_stride = q.shape[2] * q.shape[3],
                                 .dk_stride = k.shape[2] * k.shape[3],
                                 .dv_stride = k.shape[2] * k.shape[3]};
    const std::size_t bytes = plain_attention_scratch(call.forward);
    return plain_attention_backward(to, call, scratch_.of(to, bytes + ScratchOfStreams::slack).take<std::byte>(bytes));
  }
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromExternal(to, static_cast<c10::DeviceIndex>(device_)));
  const at::Tensor no_dropout = at::empty({}, options_of(q, at::kLong));
  const auto result =
      at::_scaled_dot_product_cudnn_attention_backward(by_heads(dout), by_heads(q), by_heads(k), by_heads(v), by_heads(out), of_rows(lse), no_dropout,
                                                       no_dropout, at::Tensor(), at::Tensor(), at::Tensor(), q.shape[1], k.shape[1], 0.0, true, scale);
  by_heads(dq).copy_(std::get<0>(result));
  by_heads(dk).copy_(std::get<1>(result));
  by_heads(dv).copy_(std::get<2>(result));
}

}  // namespace troupe::cuda
