#include "src/device/cpu/arguments.hpp"
#include "src/device/cpu/cpu_kernels.hpp"
#include "src/device/cpu/float8.hpp"
#include "src/device/cpu/matrix_product.hpp"
#include "src/device/cpu/parallel.hpp"
#include "src/device/cpu/vectorise.hpp"

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

/// One row of a product: out (+)= product / (left × right[j]); `step` 0: one scale on the right.
template <class T>
TROUPE_VECTORISED void unscale_row(const float* product, float left, const float* right, std::int64_t step, T* out, std::int64_t count, bool accumulate) {
  if (accumulate) {
#pragma GCC ivdep
    for (std::int64_t j = 0; j < count; ++j) narrow(product[j] / (left * right[j * step]) + widen(out[j]), out[j]);
  } else {
#pragma GCC ivdep
    for (std::int64_t j = 0; j < count; ++j) narrow(product[j] / (left * right[j * step]), out[j]);
  }
}

/// out (+)= left right with a scale for each row of left and column of right, or one: fp32 sums, then divided; scales that are powers of
/// two make that exact.
void multiply_scaled(const Operand& left, const Float8View& l, const Operand& right, const Float8View& r, const TensorView& out, bool accumulate,
                     Scratch& scratch) {
  if (l.scaling == Float8Scaling::tensor && r.scaling == Float8Scaling::tensor) return multiply(left, right, out, accumulate, unscale(l, r), scratch);
  const std::int64_t rows = out.shape[0], columns = out.shape[1];
  const TensorView product = TensorView::contiguous(scratch.take<float>(Scratch::Use::product, rows * columns), DType::f32, out.shape);
  multiply(left, right, product, false, 1.0F, scratch);
  const std::int64_t left_step = l.scaling == Float8Scaling::tensor ? 0 : 1, right_step = r.scaling == Float8Scaling::tensor ? 0 : 1;
  in_parallel(rows, rows_a_thread(columns), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      const float* from = product.as<const float>() + i * columns;
      if (out.dtype == DType::bf16) {
        unscale_row(from, l.scale[i * left_step], r.scale, right_step, out.as<BFloat16>() + i * columns, columns, accumulate);
      } else {
        unscale_row(from, l.scale[i * left_step], r.scale, right_step, out.as<float>() + i * columns, columns, accumulate);
      }
    }
  });
}

/// `along`: the scaling that would vary within a sum of the product.
bool float8(const Float8View& value, Float8Scaling along) {
  return (value.data.dtype == DType::e4m3 || value.data.dtype == DType::e5m2) && value.scale != nullptr && value.scaling != along;
}

bool result_type(const TensorView& view) { return view.dtype == DType::f32 || view.dtype == DType::bf16; }

bool matrices(const TensorView& a, const TensorView& b, const TensorView& c) { return a.shape.rank == 2 && b.shape.rank == 2 && c.shape.rank == 2; }

}  // namespace

void CpuKernels::linear_fp8(Stream&, Float8View x, Float8View w, TensorView y) {
  const Arguments arguments("linear_fp8", "x [T,K], w [N,K] float8 with scales, y [T,N] float32 or bfloat16", {{"x", x.data}, {"w", w.data}, {"y", y}});
  arguments.require(matrices(x.data, w.data, y) && x.data.shape[1] == w.data.shape[1] && y.shape == Shape{x.data.shape[0], w.data.shape[0]});
  arguments.require(float8(x, Float8Scaling::columns) && float8(w, Float8Scaling::columns) && result_type(y));
  Scratch& scratch = scratch_.mine();
  multiply_scaled(in_bfloat16(x.data, false, Scratch::Use::left_codes, scratch), x, in_bfloat16(w.data, true, Scratch::Use::right_codes, scratch), w, y, false,
                  scratch);
}

void CpuKernels::linear_fp8_backward_input(Stream&, Float8View dy, Float8View w, TensorView dx, bool accumulate) {
  const Arguments arguments("linear_fp8_backward_input", "dy [T,N], w [N,K] float8 with scales, dx [T,K] float32 or bfloat16",
                            {{"dy", dy.data}, {"w", w.data}, {"dx", dx}});
  arguments.require(matrices(dy.data, w.data, dx) && dy.data.shape[1] == w.data.shape[0] && dx.shape == Shape{dy.data.shape[0], w.data.shape[1]});
  arguments.require(float8(dy, Float8Scaling::columns) && float8(w, Float8Scaling::rows) && result_type(dx));
  Scratch& scratch = scratch_.mine();
  multiply_scaled(in_bfloat16(dy.data, false, Scratch::Use::left_codes, scratch), dy, in_bfloat16(w.data, false, Scratch::Use::right_codes, scratch), w, dx,
                  accumulate, scratch);
}

void CpuKernels::linear_fp8_backward_weight(Stream&, Float8View dy, Float8View x, TensorView dw, bool accumulate) {
  const Arguments arguments("linear_fp8_backward_weight", "dy [T,N], x [T,K] float8 with scales, dw [N,K] float32 or bfloat16",
                            {{"dy", dy.data}, {"x", x.data}, {"dw", dw}});
  arguments.require(matrices(dy.data, x.data, dw) && dy.data.shape[0] == x.data.shape[0] && dw.shape == Shape{dy.data.shape[1], x.data.shape[1]});
  arguments.require(float8(dy, Float8Scaling::rows) && float8(x, Float8Scaling::rows) && result_type(dw));
  Scratch& scratch = scratch_.mine();
  multiply_scaled(in_bfloat16(dy.data, true, Scratch::Use::left_codes, scratch), dy, in_bfloat16(x.data, false, Scratch::Use::right_codes, scratch), x, dw,
                  accumulate, scratch);
}

}  // namespace troupe::cpu
