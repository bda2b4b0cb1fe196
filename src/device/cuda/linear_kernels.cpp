// Linear layers: cuBLASLt, and for fp8 the second layout of an operand where the tensor cores ask for it.
#include "src/device/cuda/arguments.hpp"
#include "src/device/cuda/cuda_kernels.hpp"
#include "src/device/cuda/kernels/float8.hpp"
#include "src/device/cuda/kernels/transpose.hpp"

namespace troupe::cuda {
namespace {

bool matrices(const TensorView& a, const TensorView& b, const TensorView& c) { return a.shape.rank == 2 && b.shape.rank == 2 && c.shape.rank == 2; }

bool by_lines(const Float8View& a, const Float8View& b) { return a.scaling != Float8Scaling::tensor || b.scaling != Float8Scaling::tensor; }

bool float8(const Float8View& value) { return (value.data.dtype == DType::e4m3 || value.data.dtype == DType::e5m2) && value.scale != nullptr; }

constexpr std::size_t workspace_bytes = std::size_t{64} << 20U;  // all of cuBLASLt's algorithms for Hopper are content with it

constexpr std::size_t inverse_floats = 8, inverse_step = 4;  // inverse_scales writes its two 16 bytes apart
constexpr std::size_t scale_room = ScratchOfStreams::slack;

Operand operand(const TensorView& view, bool transposed = false) { return {view.data, element_of(view.dtype), view.shape[1], transposed}; }

Operand scaled(const TensorView& view, bool transposed, const float* inverse) {
  return {view.data, element_of(view.dtype), view.shape[1], transposed, inverse};
}

/// [columns, rows], as transpose_bytes left it at `data`.
Operand turned(const TensorView& of, const void* data, bool transposed, const float* inverse) {
  return {data, element_of(of.dtype), of.shape[0], transposed, inverse};
}

}  // namespace

void CudaKernels::multiply(cudaStream_t stream, const Product& product) {
  if (product.rows == 0 || product.columns == 0) return;
  products_.run(stream, product, workspaces_.of(stream, workspace_bytes).take<std::byte>(workspace_bytes), workspace_bytes);
}

void CudaKernels::linear(Stream& stream, TensorView x, TensorView w, TensorView y) {
  const Arguments arguments(device_, "linear", "x [T,K], w [N,K], y [T,N] of one floating type", {{"x", x}, {"w", w}, {"y", y}});
  arguments.require(matrices(x, w, y) && x.shape[1] == w.shape[1] && y.shape == Shape{x.shape[0], w.shape[0]});
  arguments.require(Arguments::floating(x.dtype) && w.dtype == x.dtype && y.dtype == x.dtype);
  multiply(on(stream), {.rows = x.shape[0],
                        .columns = w.shape[0],
                        .depth = x.shape[1],
                        .a = operand(x),
                        .b = operand(w, true),
                        .d = y.data,
                        .d_type = element_of(y.dtype),
                        .d_stride = y.shape[1]});
}

void CudaKernels::linear_backward_input(Stream& stream, TensorView dy, TensorView w, TensorView dx, bool accumulate) {
  const Arguments arguments(device_, "linear_backward_input", "dy [T,N], w [N,K], dx [T,K] of one floating type", {{"dy", dy}, {"w", w}, {"dx", dx}});
  arguments.require(matrices(dy, w, dx) && dy.shape[1] == w.shape[0] && dx.shape == Shape{dy.shape[0], w.shape[1]});
  arguments.require(Arguments::floating(dy.dtype) && w.dtype == dy.dtype && dx.dtype == dy.dtype);
  multiply(on(stream), {.rows = dy.shape[0],
                        .columns = w.shape[1],
                        .depth = dy.shape[1],
                        .a = operand(dy),
                        .b = operand(w),
                        .d = dx.data,
                        .d_type = element_of(dx.dtype),
                        .d_stride = dx.shape[1],
                        .accumulate = accumulate});
}

void CudaKernels::linear_backward_weight(Stream& stream, TensorView dy, TensorView x, TensorView dw, bool accumulate) {
  const Arguments arguments(device_, "linear_backward_weight", "dy [T,N], x [T,K] of one floating type, dw [N,K] float32 or theirs",
                            {{"dy", dy}, {"x", x}, {"dw", dw}});
  arguments.require(matrices(dy, x, dw) && dy.shape[0] == x.shape[0] && dw.shape == Shape{dy.shape[1], x.shape[1]});
  arguments.require(Arguments::floating(dy.dtype) && x.dtype == dy.dtype && (dw.dtype == DType::f32 || dw.dtype == dy.dtype));
  multiply(on(stream), {.rows = dy.shape[1],
                        .columns = x.shape[1],
                        .depth = dy.shape[0],
                        .a = operand(dy, true),
                        .b = operand(x),
                        .d = dw.data,
                        .d_type = element_of(dw.dtype),
                        .d_stride = dw.shape[1],
                        .accumulate = accumulate});
}

void CudaKernels::linear_fp8(Stream& stream, Float8View x, Float8View w, TensorView y) {
  const Arguments arguments(device_, "linear_fp8", "x [T,K], w [N,K] float8 with scales, y [T,N] float32 or bfloat16",
                            {{"x", x.data}, {"w", w.data}, {"y", y}});
  arguments.require(matrices(x.data, w.data, y) && x.data.shape[1] == w.data.shape[1] && y.shape == Shape{x.data.shape[0], w.data.shape[0]});
  arguments.require(float8(x) && float8(w) && Arguments::floating(y.dtype));
  if (by_lines(x, w)) return multiply_lines(on(stream), {x, false}, {w, true}, y, false);
  float8_forward(stream, x, w, y, nullptr);
}

void CudaKernels::linear_fp8_add(Stream& stream, Float8View x, Float8View w, TensorView residual, TensorView out) {
  const Arguments arguments(device_, "linear_fp8_add", "x [T,K], w [N,K] float8 with scales, residual and out [T,N] of one floating type",
                            {{"x", x.data}, {"w", w.data}, {"residual", residual}, {"out", out}});
  arguments.require(matrices(x.data, w.data, out) && x.data.shape[1] == w.data.shape[1] && out.shape == Shape{x.data.shape[0], w.data.shape[0]});
  arguments.require(float8(x) && float8(w) && Arguments::floating(out.dtype) && residual.shape == out.shape && residual.dtype == out.dtype);
  float8_forward(stream, x, w, out, residual.data);
}

/// Sums of about 14 bits between the tensor cores' steps, as torchao's forward.
void CudaKernels::float8_forward(Stream& stream, const Float8View& x, const Float8View& w, const TensorView& y, const void* residual) {
  const cudaStream_t to = on(stream);
  auto scratch = scratch_.of(to, scale_room);
  auto* inverse = scratch.take<float>(inverse_floats);
  inverse_scales(to, x.scale, w.scale, inverse);
  multiply(to, {.rows = x.data.shape[0],
                .columns = w.data.shape[0],
                .depth = x.data.shape[1],
                .a = scaled(x.data, false, inverse),
                .b = scaled(w.data, true, inverse + inverse_step),
                .d = y.data,
                .d_type = element_of(y.dtype),
                .d_stride = y.shape[1],
                .c = residual,
                .fast_accumulation = true});
}

void CudaKernels::linear_fp8_backward_input(Stream& stream, Float8View dy, Float8View w, TensorView dx, bool accumulate) {
  const Arguments arguments(device_, "linear_fp8_backward_input", "dy [T,N], w [N,K] float8 with scales, dx [T,K] float32 or bfloat16",
                            {{"dy", dy.data}, {"w", w.data}, {"dx", dx}});
  arguments.require(matrices(dy.data, w.data, dx) && dy.data.shape[1] == w.data.shape[0] && dx.shape == Shape{dy.data.shape[0], w.data.shape[1]});
  arguments.require(float8(dy) && float8(w) && Arguments::floating(dx.dtype));
  const cudaStream_t to = on(stream);
  if (by_lines(dy, w)) return multiply_lines(to, {dy, false}, {w, false}, dx, accumulate);
  auto scratch = scratch_.of(to, w.data.bytes() + ScratchOfStreams::slack + scale_room);
  auto* inverse = scratch.take<float>(inverse_floats);
  inverse_scales(to, dy.scale, w.scale, inverse);
  auto* w_transposed = scratch.take<std::byte>(w.data.bytes());
  transpose_bytes(to, w.data.data, w.data.shape[0], w.data.shape[1], w_transposed);
  multiply(to, {.rows = dy.data.shape[0],
                .columns = w.data.shape[1],
                .depth = dy.data.shape[1],
                .a = scaled(dy.data, false, inverse),
                .b = turned(w.data, w_transposed, true, inverse + inverse_step),
                .d = dx.data,
                .d_type = element_of(dx.dtype),
                .d_stride = dx.shape[1],
                .accumulate = accumulate});
}

void CudaKernels::linear_fp8_backward_weight(Stream& stream, Float8View dy, Float8View x, TensorView dw, bool accumulate) {
  const Arguments arguments(device_, "linear_fp8_backward_weight", "dy [T,N], x [T,K] float8 with scales, dw [N,K] float32 or bfloat16",
                            {{"dy", dy.data}, {"x", x.data}, {"dw", dw}});
  arguments.require(matrices(dy.data, x.data, dw) && dy.data.shape[0] == x.data.shape[0] && dw.shape == Shape{dy.data.shape[1], x.data.shape[1]});
  arguments.require(float8(dy) && float8(x) && Arguments::floating(dw.dtype));
  const cudaStream_t to = on(stream);
  if (by_lines(dy, x)) return multiply_lines(to, {dy, true}, {x, false}, dw, accumulate);
  auto scratch = scratch_.of(to, dy.data.bytes() + ScratchOfStreams::slack + scale_room);
  auto* inverse = scratch.take<float>(inverse_floats);
  inverse_scales(to, dy.scale, x.scale, inverse);
  const std::byte* dy_transposed = gradient_.data;
  if (!gradient_.holds(dy.data, to)) {
    auto* place = scratch.take<std::byte>(dy.data.bytes());
    transpose_bytes(to, dy.data.data, dy.data.shape[0], dy.data.shape[1], place);
    dy_transposed = place;
  }
  if (!value_.holds(x.data, to)) {  // q, k and v, or gate and up, ask for the same one in turn
    const std::size_t bytes = x.data.bytes();
    auto* place = turned_values_.of(to, bytes + ScratchOfStreams::slack).take<std::byte>(bytes);
    transpose_bytes(to, x.data.data, x.data.shape[0], x.data.shape[1], place);
    value_ = {x.data.data, bytes, to, place};
  }
  multiply(to, {.rows = dy.data.shape[1],
                .columns = x.data.shape[1],
                .depth = dy.data.shape[0],
                .a = turned(dy.data, dy_transposed, false, inverse),
                .b = turned(x.data, value_.data, true, inverse + inverse_step),
                .d = dw.data,
                .d_type = element_of(dw.dtype),
                .d_stride = dw.shape[1],
                .accumulate = accumulate});
}

}  // namespace troupe::cuda
