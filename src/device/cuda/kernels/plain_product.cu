#include "src/device/cuda/kernels/dispatch.cuh"
#include "src/device/cuda/kernels/product.hpp"

namespace troupe::cuda {
namespace {

constexpr int side = 32;

__device__ float element_of(const Operand& operand, std::int64_t row, std::int64_t column) {
  const std::int64_t at = operand.transposed ? column * operand.stride + row : row * operand.stride + column;
  switch (operand.type) {
    case Element::f32: return static_cast<const float*>(operand.data)[at];
    case Element::bf16: return widen(static_cast<const BFloat16*>(operand.data)[at]);
    case Element::e4m3: return from_float8<Element::e4m3>(static_cast<const std::uint8_t*>(operand.data)[at]);
    default: return from_float8<Element::e5m2>(static_cast<const std::uint8_t*>(operand.data)[at]);
  }
}

__device__ float value_at(const void* data, Element type, std::int64_t at) {
  return type == Element::f32 ? static_cast<const float*>(data)[at] : widen(static_cast<const BFloat16*>(data)[at]);
}

__global__ void __launch_bounds__(side* side) product_kernel(const Product p) {
  __shared__ float a[side][side + 1], b[side][side + 1];
  const int x = static_cast<int>(threadIdx.x) % side, y = static_cast<int>(threadIdx.x) / side;
  const std::int64_t row0 = blockIdx.x * std::int64_t(side), column0 = blockIdx.y * std::int64_t(side);
  float sum = 0;
  for (std::int64_t k = 0; k < p.depth; k += side) {
    a[y][x] = row0 + y < p.rows && k + x < p.depth ? element_of(p.a, row0 + y, k + x) : 0.0F;
    b[y][x] = column0 + x < p.columns && k + y < p.depth ? element_of(p.b, k + y, column0 + x) : 0.0F;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < side; ++i) sum += a[y][i] * b[i][x];
    __syncthreads();
  }
  const std::int64_t row = row0 + y, column = column0 + x;
  if (row >= p.rows || column >= p.columns) return;
  if (p.a.inverse_scale != nullptr) sum *= *p.a.inverse_scale;
  if (p.b.inverse_scale != nullptr) sum *= *p.b.inverse_scale;
  const std::int64_t at = row * p.d_stride + column;
  if (p.accumulate) sum += value_at(p.d, p.d_type, at);
  if (p.c != nullptr) sum += value_at(p.c, p.d_type, at);
  if (p.d_type == Element::f32) {
    static_cast<float*>(p.d)[at] = sum;
  } else {
    static_cast<BFloat16*>(p.d)[at] = narrow<BFloat16>(sum);
  }
}

bool multipliable(Element type) { return type == Element::f32 || type == Element::bf16 || type == Element::e4m3 || type == Element::e5m2; }

}  // namespace

void plain_product(cudaStream_t stream, const Product& product) {
  if (product.rows == 0 || product.columns == 0) return;
  const bool types = multipliable(product.a.type) && multipliable(product.b.type) && (product.d_type == Element::f32 || product.d_type == Element::bf16);
  if (!types) refuse("plain_product", "operands of fp32, bf16, e4m3 or e5m2 and a result of fp32 or bf16");
  product_kernel<<<dim3(grid(ceil_div(product.rows, side)), grid(ceil_div(product.columns, side))), side * side, 0, stream>>>(product);
  check_launch("plain_product");
}

}  // namespace troupe::cuda
