// Norms, rotary, SwiGLU, embedding, loss: one launch function each.
#include "src/device/cuda/arguments.hpp"
#include "src/device/cuda/cuda_kernels.hpp"
#include "src/device/cuda/kernels/cross_entropy.hpp"
#include "src/device/cuda/kernels/embedding.hpp"
#include "src/device/cuda/kernels/memory.hpp"
#include "src/device/cuda/kernels/rms_norm.hpp"
#include "src/device/cuda/kernels/rotary.hpp"
#include "src/device/cuda/kernels/swiglu.hpp"

namespace troupe::cuda {
namespace {

bool alike(const TensorView& a, const TensorView& b) { return a.shape == b.shape && a.dtype == b.dtype; }

bool norm_shapes(const TensorView& x, const TensorView& w, const TensorView& rstd) {
  return x.shape.rank == 2 && w.shape == Shape{x.shape[1]} && rstd.shape == Shape{x.shape[0]} && rstd.dtype == DType::f32 && w.dtype == x.dtype &&
         Arguments::floating(x.dtype);
}

}  // namespace

void CudaKernels::rms_norm(Stream& stream, TensorView x, TensorView w, double eps, TensorView y, TensorView rstd) {
  const Arguments arguments(device_, "rms_norm", "x [T,D], y and w [D] of one floating type, rstd [T] float32", {{"x", x}, {"w", w}, {"y", y}, {"rstd", rstd}});
  arguments.require(norm_shapes(x, w, rstd) && alike(x, y));
  norm(on(stream), x, w, eps, y, rstd, nullptr);
}

void CudaKernels::norm(cudaStream_t stream, const TensorView& x, const TensorView& w, double eps, const TensorView& y, const TensorView& rstd, float* amax) {
  cuda::rms_norm(stream, {.x = x.data,
                          .w = w.data,
                          .y = y.data,
                          .rstd = rstd.as<float>(),
                          .type = element_of(x.dtype),
                          .rows = x.shape[0],
                          .columns = x.shape[1],
                          .eps = static_cast<float>(eps),
                          .amax = amax});
}

/// Raised by the kernel that follows.
void CudaKernels::zero(cudaStream_t stream, float* amax) { check(cudaMemsetAsync(amax, 0, sizeof(float), stream), "an amax"); }

void CudaKernels::rms_norm_backward(Stream& stream, TensorView dy, TensorView x, TensorView w, TensorView rstd, TensorView dx, bool accumulate_dx,
                                    TensorView dw, bool accumulate_dw) {
  rms_norm_backward_amax(stream, dy, x, w, rstd, dx, accumulate_dx, dw, accumulate_dw, nullptr);
}

void CudaKernels::rms_norm_backward_amax(Stream& stream, TensorView dy, TensorView x, TensorView w, TensorView rstd, TensorView dx, bool accumulate_dx,
                                         TensorView dw, bool accumulate_dw, float* amax) {
  const Arguments arguments(device_, "rms_norm_backward", "dy, x, dx [T,D] and w [D] of one floating type, rstd [T] and dw [D] float32",
                            {{"dy", dy}, {"x", x}, {"w", w}, {"rstd", rstd}, {"dx", dx}, {"dw", dw}});
  arguments.require(norm_shapes(x, w, rstd) && alike(x, dy) && alike(x, dx) && dw.shape == w.shape && dw.dtype == DType::f32);
  const cudaStream_t to = on(stream);
  const std::size_t bytes = rms_norm_backward_scratch(x.shape[1]);
  if (amax != nullptr) zero(to, amax);
  cuda::rms_norm_backward(to, {.dy = dy.data,
                               .x = x.data,
                               .w = w.data,
                               .rstd = rstd.as<float>(),
                               .dx = dx.data,
                               .residual = accumulate_dx ? dx.data : nullptr,
                               .dw = dw.as<float>(),
                               .accumulate_dw = accumulate_dw,
                               .type = element_of(x.dtype),
                               .rows = x.shape[0],
                               .columns = x.shape[1],
                               .amax = amax,
                               .scratch = scratch_.of(to, bytes + ScratchOfStreams::slack).take<std::byte>(bytes)});
}

void CudaKernels::rotary(Stream& stream, TensorView x, TensorView table, bool inverse) { rotary_amax(stream, x, table, inverse, nullptr); }

void CudaKernels::rotary_amax(Stream& stream, TensorView x, TensorView table, bool inverse, float* amax) {
  const Arguments arguments(device_, "rotary", "x [T,heads,d] floating with d even, table [S,d/2,2] float32", {{"x", x}, {"table", table}});
  arguments.require(x.shape.rank == 3 && table.shape.rank == 3 && x.shape[2] == 2 * table.shape[1] && table.shape[2] == 2);
  arguments.require(Arguments::floating(x.dtype) && table.dtype == DType::f32 && (table.shape[0] > 0 || x.shape[0] == 0));
  if (amax != nullptr) zero(on(stream), amax);
  cuda::rotary(on(stream), {.x = x.data,
                            .type = element_of(x.dtype),
                            .tokens = x.shape[0],
                            .heads = x.shape[1],
                            .head_size = x.shape[2],
                            .stride = x.shape[1] * x.shape[2],
                            .table = table.as<float>(),
                            .positions = table.shape[0],
                            .inverse = inverse,
                            .amax = amax});
}

void CudaKernels::swiglu(Stream& stream, TensorView gate, TensorView up, TensorView out) {
  const Arguments arguments(device_, "swiglu", "gate, up, out [T,D] of one floating type", {{"gate", gate}, {"up", up}, {"out", out}});
  arguments.require(gate.shape.rank == 2 && alike(gate, up) && alike(gate, out) && Arguments::floating(gate.dtype));
  gated(on(stream), gate, up, out, nullptr);
}

void CudaKernels::gated(cudaStream_t stream, const TensorView& gate, const TensorView& up, const TensorView& out, float* amax) {
  cuda::swiglu(stream, {.gate = gate.data,
                        .up = up.data,
                        .out = out.data,
                        .type = element_of(gate.dtype),
                        .rows = gate.shape[0],
                        .columns = gate.shape[1],
                        .stride = gate.shape[1],
                        .amax = amax});
}

void CudaKernels::swiglu_backward(Stream& stream, TensorView dout, TensorView gate, TensorView up, TensorView dgate, TensorView dup) {
  swiglu_backward_amax(stream, dout, gate, up, dgate, dup, nullptr, nullptr);
}

void CudaKernels::swiglu_backward_amax(Stream& stream, TensorView dout, TensorView gate, TensorView up, TensorView dgate, TensorView dup, float* dgate_amax,
                                       float* dup_amax) {
  const Arguments arguments(device_, "swiglu_backward", "dout, gate, up, dgate, dup [T,D] of one floating type",
                            {{"dout", dout}, {"gate", gate}, {"up", up}, {"dgate", dgate}, {"dup", dup}});
  arguments.require(gate.shape.rank == 2 && alike(gate, dout) && alike(gate, up) && alike(gate, dgate) && alike(gate, dup) && Arguments::floating(gate.dtype));
  for (float* amax : {dgate_amax, dup_amax}) {
    if (amax != nullptr) zero(on(stream), amax);
  }
  cuda::swiglu_backward(on(stream), {.dout = dout.data,
                                     .gate = gate.data,
                                     .up = up.data,
                                     .dgate = dgate.data,
                                     .dup = dup.data,
                                     .type = element_of(gate.dtype),
                                     .rows = gate.shape[0],
                                     .columns = gate.shape[1],
                                     .stride = gate.shape[1],
                                     .gradient_stride = gate.shape[1],
                                     .amax = dgate_amax,
                                     .amax_apart = true,
                                     .up_amax = dup_amax});
}

void CudaKernels::add(Stream& stream, TensorView a, TensorView b, TensorView out) {
  const Arguments arguments(device_, "add", "a, b, out of one shape and floating type", {{"a", a}, {"b", b}, {"out", out}});
  arguments.require(alike(a, b) && alike(a, out) && Arguments::floating(a.dtype));
  cuda::add(on(stream), a.data, b.data, out.data, element_of(a.dtype), a.shape.elements());
}

void CudaKernels::embedding(Stream& stream, TensorView tokens, TensorView table, TensorView out) {
  const Arguments arguments(device_, "embedding", "tokens [T] int32, table [V,D] and out [T,D] of one floating type",
                            {{"tokens", tokens}, {"table", table}, {"out", out}});
  arguments.require(tokens.shape.rank == 1 && tokens.dtype == DType::i32 && table.shape.rank == 2 && out.shape == Shape{tokens.shape[0], table.shape[1]} &&
                    table.dtype == out.dtype && Arguments::floating(out.dtype));
  cuda::embedding(on(stream), tokens.as<std::int32_t>(), tokens.shape[0], table.data, table.shape[0], table.shape[1], element_of(table.dtype), out.data);
}

void CudaKernels::embedding_backward(Stream& stream, TensorView tokens, TensorView dout, TensorView dtable, bool accumulate) {
  const Arguments arguments(device_, "embedding_backward", "tokens [T] int32, dout [T,D] floating, dtable [V,D] float32 or dout's",
                            {{"tokens", tokens}, {"dout", dout}, {"dtable", dtable}});
  arguments.require(tokens.shape.rank == 1 && tokens.dtype == DType::i32 && dtable.shape.rank == 2 && dout.shape == Shape{tokens.shape[0], dtable.shape[1]} &&
                    (dtable.dtype == DType::f32 || dtable.dtype == dout.dtype) && Arguments::floating(dout.dtype));
  const cudaStream_t to = on(stream);
  const std::size_t bytes = embedding_backward_scratch(tokens.shape[0], dtable.shape[1]);
  const bool half = dtable.dtype == DType::bf16;
  cuda::embedding_backward(to, {.tokens = tokens.as<std::int32_t>(),
                                .dout = dout.data,
                                .type = element_of(dout.dtype),
                                .dtable = half ? nullptr : dtable.as<float>(),
                                .accumulate = accumulate,
                                .count = tokens.shape[0],
                                .vocabulary = dtable.shape[0],
                                .columns = dtable.shape[1],
                                .scratch = scratch_.of(to, bytes + ScratchOfStreams::slack).take<std::byte>(bytes),
                                .bf16_dtable = half ? dtable.data : nullptr});
}

void CudaKernels::cross_entropy(Stream& stream, TensorView logits, TensorView labels, double grad_scale, VerdictSums* sums) {
  const Arguments arguments(device_, "cross_entropy", "logits [T,V] floating, labels [T] int32", {{"logits", logits}, {"labels", labels}});
  arguments.require(logits.shape.rank == 2 && labels.shape == Shape{logits.shape[0]} && labels.dtype == DType::i32 && Arguments::floating(logits.dtype));
  const cudaStream_t to = on(stream);
  const auto rows = static_cast<std::size_t>(logits.shape[0]);
  cuda::cross_entropy(to, {.logits = logits.data,
                           .type = element_of(logits.dtype),
                           .labels = labels.as<std::int32_t>(),
                           .rows = logits.shape[0],
                           .columns = logits.shape[1],
                           .grad_scale = grad_scale,
                           .sums = sums,
                           .losses = scratch_.of(to, rows * sizeof(float) + ScratchOfStreams::slack).take<float>(rows)});
}

}  // namespace troupe::cuda
