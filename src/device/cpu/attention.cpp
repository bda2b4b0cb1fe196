#include "src/device/cpu/arguments.hpp"
#include "src/device/cpu/attention_blocks.hpp"
#include "src/device/cpu/attention_reference.hpp"
#include "src/device/cpu/cpu_kernels.hpp"

namespace troupe::cpu {
namespace {

bool attention_shapes(const TensorView& q, const TensorView& k, const TensorView& v, const TensorView& lse) {
  if (q.shape.rank != 4 || k.shape.rank != 4 || k.shape != v.shape || !Arguments::floating(q.dtype) || k.dtype != q.dtype || v.dtype != q.dtype) return false;
  if (k.shape[0] != q.shape[0] || k.shape[1] != q.shape[1] || k.shape[3] != q.shape[3] || k.shape[2] < 1 || q.shape[2] % k.shape[2] != 0) return false;
  return lse.shape == Shape{q.shape[0], q.shape[2], q.shape[1]} && lse.dtype == Arguments::wide(q.dtype);
}

bool starts_fit(const TensorView& starts, const TensorView& q) {
  return starts.data == nullptr || (starts.dtype == DType::i32 && starts.shape == Shape{q.shape[0], q.shape[1]});
}

bool alike(const TensorView& a, const TensorView& b) { return a.shape == b.shape && a.dtype == b.dtype; }

constexpr const char* rule =
    "q, out [B,S,H,d], k, v [B,S,KV,d] of one floating type with H a multiple of KV, lse [B,H,S] float32 (float64 beside float64), starts int32 [B,S] or none";

}  // namespace

void CpuKernels::attention(Stream&, TensorView q, TensorView k, TensorView v, double scale, TensorView out, TensorView lse, TensorView starts) {
  const Arguments arguments("attention", rule, {{"q", q}, {"k", k}, {"v", v}, {"out", out}, {"lse", lse}});
  arguments.require(attention_shapes(q, k, v, lse) && alike(q, out) && starts_fit(starts, q));
  if (q.dtype != DType::f64) return attention_blocks(q, k, v, scale, out, lse, starts, scratch_);
  attention_reference(q, k, v, scale, out, lse, starts);
}

void CpuKernels::attention_backward(Stream&, TensorView dout, TensorView q, TensorView k, TensorView v, TensorView out, TensorView lse, double scale,
                                    TensorView dq, TensorView dk, TensorView dv, TensorView starts) {
  const Arguments arguments("attention_backward", rule,
                            {{"dout", dout}, {"q", q}, {"k", k}, {"v", v}, {"out", out}, {"lse", lse}, {"dq", dq}, {"dk", dk}, {"dv", dv}});
  arguments.require(attention_shapes(q, k, v, lse) && alike(q, out) && alike(q, dout) && alike(q, dq) && alike(k, dk) && alike(k, dv) && starts_fit(starts, q));
  if (q.dtype != DType::f64) return attention_blocks_backward(dout, q, k, v, out, lse, scale, dq, dk, dv, starts, scratch_);
  attention_reference_backward(dout, q, k, v, out, lse, scale, dq, dk, dv, starts);
}

}  // namespace troupe::cpu
