#pragma once
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/device/device.hpp"

namespace troupe {

[[nodiscard]] inline DType dtype_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat: return DType::f32;
    case at::kBFloat16: return DType::bf16;
    case at::kDouble: return DType::f64;
    case at::kFloat8_e4m3fn: return DType::e4m3;
    case at::kFloat8_e5m2: return DType::e5m2;
    case at::kLong: return DType::i64;
    case at::kInt: return DType::i32;
    default: return DType::u8;
  }
}

/// The view that kernels take of a contiguous tensor.
[[nodiscard]] inline TensorView view(const at::Tensor& tensor) {
  Shape shape;
  shape.rank = static_cast<std::uint8_t>(tensor.dim());
  for (std::int64_t i = 0; i < tensor.dim(); ++i) shape.size[static_cast<std::size_t>(i)] = tensor.size(i);
  return TensorView::contiguous(tensor.data_ptr(), dtype_of(tensor), shape);
}

/// ‖actual − expected‖ / ‖expected‖ in fp64; the plain norm where nothing is expected; NaN if shapes differ.
[[nodiscard]] inline double relative_error(const at::Tensor& actual, const at::Tensor& expected) {
  if (actual.sizes() != expected.sizes()) return std::nan("");
  const at::Tensor want = expected.detach().to(at::kDouble);
  const double size = want.norm().item<double>();
  const double difference = (actual.detach().to(at::kDouble) - want).norm().item<double>();
  return size > 0 ? difference / size : difference;
}

[[nodiscard]] inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() && std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0;
}

/// Everything that is checked for each type that activations may have: fp64 shows that the formula is right, the others that the
/// rounding is no worse than the type's.
struct Precision {
  at::ScalarType type;
  double tolerance;
  [[nodiscard]] at::ScalarType wide() const { return type == at::kDouble ? at::kDouble : at::kFloat; }
};
inline const std::vector<Precision> precisions = {{at::kDouble, 1e-12}, {at::kFloat, 2e-6}, {at::kBFloat16, 5e-3}};

class KernelTest : public ::testing::Test {
 protected:
  KernelTest() : device_(make_cpu_device(1)), kernels_(device_->kernels()) { at::manual_seed(7); }

  /// Normal values that the type holds exactly.
  [[nodiscard]] static at::Tensor random(at::IntArrayRef sizes, at::ScalarType type) { return at::randn(sizes, at::kDouble).to(type); }
  /// The same values in fp64, as a leaf of autograd's graph.
  [[nodiscard]] static at::Tensor leaf(const at::Tensor& values) { return values.to(at::kDouble).clone().requires_grad_(true); }

  std::unique_ptr<Device> device_;
  Kernels& kernels_;
  Stream stream_;
};

}  // namespace troupe
