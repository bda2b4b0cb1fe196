#include "src/device/cpu/arguments.hpp"
#include "src/device/cpu/cpu_kernels.hpp"
#include "src/device/cpu/float8.hpp"
#include "src/device/cpu/matrix_product.hpp"

namespace troupe::cpu {
namespace {

/// fp8 values are exact in bf16, products of two of them exact in fp32: what tensor cores compute, up to the order of sums.
Operand in_bfloat16(const TensorView& codes, bool transposed, Scratch::Use room, Scratch& scratch) {
  const std::int64_t count = codes.shape.elements();
  auto* values = scratch.take<BFloat16>(room, count);
  dequantize(codes.dtype, codes.as<const std::uint8_t>(), values, count);
  return {TensorView::contiguous(values, DType::bf16, codes.shape), transposed};
}

float unscale(const Float8View& a, const Float8View& b) { return static_cast<float>(1.0 / (static_cast<double>(*a.scale) * static_cast<double>(*b.scale))); }

bool float8(const Float8View& value) { return (value.data.dtype == DType::e4m3 || value.data.dtype == DType::e5m2) && value.scale != nullptr; }

bool result_type(const TensorView& view) { return view.dtype == DType::f32 || view.dtype == DType::bf16; }

bool matrices(const TensorView& a, const TensorView& b, const TensorView& c) { return a.shape.rank == 2 && b.shape.rank == 2 && c.shape.rank == 2; }

}  // namespace

void CpuKernels::linear_fp8(Stream&, Float8View x, Float8View w, TensorView y) {
  const Arguments arguments("linear_fp8", "x [T,K], w [N,K] float8 with scales, y [T,N] float32 or bfloat16", {{"x", x.data}, {"w", w.data}, {"y", y}});
  arguments.require(matrices(x.data, w.data, y) && x.data.shape[1] == w.data.shape[1] && y.shape == Shape{x.data.shape[0], w.data.shape[0]});
  arguments.require(float8(x) && float8(w) && result_type(y));
  Scratch& scratch = scratch_.mine();
  multiply(in_bfloat16(x.data, false, Scratch::Use::left_codes, scratch), in_bfloat16(w.data, true, Scratch::Use::right_codes, scratch), y, false,
           unscale(x, w), scratch);
}

void CpuKernels::linear_fp8_backward_input(Stream&, Float8View dy, Float8View w, TensorView dx, bool accumulate) {
  const Arguments arguments("linear_fp8_backward_input", "dy [T,N], w [N,K] float8 with scales, dx [T,K] float32 or bfloat16",
                            {{"dy", dy.data}, {"w", w.data}, {"dx", dx}});
  arguments.require(matrices(dy.data, w.data, dx) && dy.data.shape[1] == w.data.shape[0] && dx.shape == Shape{dy.data.shape[0], w.data.shape[1]});
  arguments.require(float8(dy) && float8(w) && result_type(dx));
  Scratch& scratch = scratch_.mine();
  multiply(in_bfloat16(dy.data, false, Scratch::Use::left_codes, scratch), in_bfloat16(w.data, false, Scratch::Use::right_codes, scratch), dx, accumulate,
           unscale(dy, w), scratch);
}

void CpuKernels::linear_fp8_backward_weight(Stream&, Float8View dy, Float8View x, TensorView dw, bool accumulate) {
  const Arguments arguments("linear_fp8_backward_weight", "dy [T,N], x [T,K] float8 with scales, dw [N,K] float32",
                            {{"dy", dy.data}, {"x", x.data}, {"dw", dw}});
  arguments.require(matrices(dy.data, x.data, dw) && dy.data.shape[0] == x.data.shape[0] && dw.shape == Shape{dy.data.shape[1], x.data.shape[1]});
  arguments.require(float8(dy) && float8(x) && dw.dtype == DType::f32);
  Scratch& scratch = scratch_.mine();
  multiply(in_bfloat16(dy.data, true, Scratch::Use::left_codes, scratch), in_bfloat16(x.data, false, Scratch::Use::right_codes, scratch), dw, accumulate,
           unscale(dy, x), scratch);
}

}  // namespace troupe::cpu
