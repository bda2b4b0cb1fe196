#include "src/device/cpu/matrix_product.hpp"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <c10/core/InferenceMode.h>

#include "src/device/cpu/arguments.hpp"
#include "src/device/cpu/conversion.hpp"
#include "src/device/cpu/product_bf16.hpp"

namespace troupe::cpu {
namespace {

at::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::bf16: return at::kBFloat16;
    case DType::f64: return at::kDouble;
    default: return at::kFloat;
  }
}

at::Tensor wrap(const TensorView& view) { return at::from_blob(view.data, {view.shape[0], view.shape[1]}, at::TensorOptions(scalar_type(view.dtype))); }

at::Tensor wrap(const Operand& operand) {
  at::Tensor matrix = wrap(operand.matrix);
  return operand.transposed ? matrix.t() : matrix;
}

void multiply_same_type(const Operand& left, const Operand& right, const TensorView& out, bool accumulate, float factor) {
  at::Tensor result = wrap(out);
  if (!accumulate && factor == 1.0F) {
    at::mm_out(result, wrap(left), wrap(right));
  } else {
    at::addmm_out(result, result, wrap(left), wrap(right), accumulate ? 1.0 : 0.0, static_cast<double>(factor));
  }
}

/// The operand in fp32, as it is or converted into `room`.
Operand in_float(const Operand& operand, Scratch::Use room, Scratch& scratch) {
  if (operand.matrix.dtype == DType::f32) return operand;
  const std::int64_t count = operand.matrix.shape.elements();
  float* values = scratch.take<float>(room, count);
  convert(operand.matrix.as<const BFloat16>(), values, count);
  return {TensorView::contiguous(values, DType::f32, operand.matrix.shape), operand.transposed};
}

}  // namespace

void multiply_by_torch(const Operand& left, const Operand& right, const TensorView& out, bool accumulate, float factor, Scratch& scratch) {
  // OpenMP's thread count belongs to the calling thread: a lane's would take every core unless told what at::set_num_threads said.
  at::internal::lazy_init_num_threads();
  const c10::InferenceMode no_autograd;
  const bool same = left.matrix.dtype == right.matrix.dtype && left.matrix.dtype == out.dtype;
  // In bf16 a factor or an addend would be one rounding more.
  if (same && (out.dtype != DType::bf16 || (!accumulate && factor == 1.0F))) return multiply_same_type(left, right, out, accumulate, factor);
  const Operand wide_left = in_float(left, Scratch::Use::left, scratch);
  const Operand wide_right = in_float(right, Scratch::Use::right, scratch);
  if (out.dtype == DType::f32) return multiply_same_type(wide_left, wide_right, out, accumulate, factor);
  const std::int64_t count = out.shape.elements();
  const TensorView product = TensorView::contiguous(scratch.take<float>(Scratch::Use::product, count), DType::f32, out.shape);
  multiply_same_type(wide_left, wide_right, product, false, factor);
  store_product(product.as<const float>(), out.as<BFloat16>(), count, accumulate);
}

void multiply(Operand left, Operand right, TensorView out, bool accumulate, float factor, Scratch& scratch) {
  const bool plain = out.dtype == DType::bf16 && !accumulate && factor == 1.0F;  // torch's own is a little faster there
  if (left.matrix.dtype == DType::bf16 && !plain && multiplies_bf16()) return multiply_bf16(left, right, out, accumulate, factor, scratch);
  multiply_by_torch(left, right, out, accumulate, factor, scratch);
}

}  // namespace troupe::cpu
