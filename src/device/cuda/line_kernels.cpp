// The row-wise fp8 recipes: a scale for each row or column, a power of two. Their codes over their scales are exact in bf16, so the products are the
// recipe's own, at bf16's speed.
#include "src/device/cuda/arguments.hpp"
#include "src/device/cuda/cuda_kernels.hpp"
#include "src/device/cuda/kernels/float8_lines.hpp"
#include "src/device/line_scratch.hpp"

namespace troupe::cuda {
namespace {

Lines lines_of(Float8Scaling scaling) {
  switch (scaling) {
    case Float8Scaling::rows: return Lines::rows;
    case Float8Scaling::columns: return Lines::columns;
    default: return Lines::all;
  }
}

LineMatrix matrix_of(const TensorView& x, Float8Scaling scaling) { return {x.data, element_of(x.dtype), x.shape[0], x.shape[1], lines_of(scaling)}; }

std::int64_t scales_of(const TensorView& x, Float8Scaling by) { return by == Float8Scaling::rows ? x.shape[0] : by == Float8Scaling::columns ? x.shape[1] : 1; }

}  // namespace

void CudaKernels::quantize_by_powers(Stream& stream, TensorView x, Float8Scaling by, TensorView scales, TensorView out, Float8Counts* counts) {
  const Arguments arguments(device_, "quantize_by_powers",
                            "x [R,C] float32 or bfloat16, scales [R] by rows, [C] by columns or [1], float32, out float8_e4m3 or float8_e5m2 as x",
                            {{"x", x}, {"scales", scales}, {"out", out}});
  arguments.require(x.shape.rank == 2 && x.shape == out.shape && Arguments::floating(x.dtype));
  arguments.require((out.dtype == DType::e4m3 || out.dtype == DType::e5m2) && scales.dtype == DType::f32 && scales.shape == Shape{scales_of(x, by)});
  written(out);
  quantize_lines(on(stream), matrix_of(x, by), scales.as<float>(), out.data, element_of(out.dtype), counts);
}

void CudaKernels::multiply_lines(cudaStream_t stream, const LineOperand& a, const LineOperand& b, const TensorView& d, bool accumulate) {
  const auto elements = [](const LineOperand& operand) { return static_cast<std::size_t>(operand.value.data.shape.elements()); };
  auto scratch = scratch_.of(stream, line_product_scratch(elements(a), elements(b)) + 2 * ScratchOfStreams::slack);
  const auto widened = [&](const LineOperand& operand) {
    void* room = scratch.take<std::uint16_t>(elements(operand));
    dequantize_lines(stream, matrix_of(operand.value.data, operand.value.scaling), operand.value.scale, room);
    return Operand{room, Element::bf16, operand.value.data.shape[1], operand.transposed};
  };
  const Operand left = widened(a), right = widened(b);
  multiply(stream, {.rows = d.shape[0],
                    .columns = d.shape[1],
                    .depth = a.value.data.shape[a.transposed ? 0 : 1],
                    .a = left,
                    .b = right,
                    .d = d.data,
                    .d_type = element_of(d.dtype),
                    .d_stride = d.shape[1],
                    .accumulate = accumulate});
}

}  // namespace troupe::cuda
