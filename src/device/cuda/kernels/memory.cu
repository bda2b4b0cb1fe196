#include "src/device/cuda/kernels/dispatch.cuh"
#include "src/device/cuda/kernels/memory.hpp"

namespace troupe::cuda {
namespace {

constexpr int threads = 256;

template <class T>
__global__ void fill_kernel(T* x, std::int64_t count, T value) {
  for (std::int64_t i = blockIdx.x * std::int64_t(threads) + threadIdx.x; i < count; i += std::int64_t(gridDim.x) * threads) x[i] = value;
}

template <class To, class From>
__device__ To converted(From x) {
  return static_cast<To>(x);
}
template <>
__device__ BFloat16 converted<BFloat16, float>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ BFloat16 converted<BFloat16, double>(double x) {
  return __double2bfloat16(x);
}
template <>
__device__ float converted<float, BFloat16>(BFloat16 x) {
  return __bfloat162float(x);
}
template <>
__device__ double converted<double, BFloat16>(BFloat16 x) {
  return static_cast<double>(__bfloat162float(x));
}

template <class From, class To>
__global__ void cast_kernel(const From* from, To* to, std::int64_t count) {
  for (std::int64_t i = blockIdx.x * std::int64_t(threads) + threadIdx.x; i < count; i += std::int64_t(gridDim.x) * threads) to[i] = converted<To>(from[i]);
}

/// fp32 and bf16, eight at a time; one vector a thread.
template <class From, class To>
__global__ void cast8_kernel(const From* __restrict__ from, To* __restrict__ to, std::int64_t vectors) {
  const std::int64_t i = blockIdx.x * std::int64_t(threads) + threadIdx.x;
  if (i >= vectors) return;
  float values[width];
  unpack(load8(from + i * width), values);
  store8(to + i * width, pack<To>(values));
}

template <class T>
__global__ void add8_kernel(const T* a, const T* b, T* out, std::int64_t vectors) {
  const std::int64_t i = blockIdx.x * std::int64_t(threads) + threadIdx.x;
  if (i >= vectors) return;
  const Packed<T> left = load8(a + i * width), right = load8(b + i * width);
  float x[width], y[width];
  unpack(left, x);
  unpack(right, y);
#pragma unroll
  for (int j = 0; j < width; ++j) x[j] += y[j];
  store8(out + i * width, pack<T>(x));
}

template <class T>
__global__ void add_kernel(const T* a, const T* b, T* out, std::int64_t first, std::int64_t count) {
  const std::int64_t i = first + blockIdx.x * std::int64_t(threads) + threadIdx.x;
  if (i < count) out[i] = narrow<T>(widen(a[i]) + widen(b[i]));
}

unsigned strided_grid(std::int64_t count) {
  const std::int64_t blocks = ceil_div(count, threads * 4), most = std::int64_t(multiprocessors()) * 16;
  return grid(blocks < most ? blocks : most);
}

template <class From, class To>
void cast_all(cudaStream_t stream, const From* from, To* to, std::int64_t count) {
  std::int64_t whole = 0;
  if constexpr (sizeof(From) < 8 && sizeof(To) < 8) {
    if (aligned(from) && aligned(to)) whole = count / width;
    if (whole > 0) cast8_kernel<<<grid(ceil_div(whole, threads)), threads, 0, stream>>>(from, to, whole);
  }
  const std::int64_t rest = count - whole * width;
  if (rest > 0) cast_kernel<<<strided_grid(rest), threads, 0, stream>>>(from + whole * width, to + whole * width, rest);
}

template <class F>
void with_real(const char* operation, Element element, F f) {
  if (element == Element::f64) return f(double{});
  with_floating(operation, element, f);
}

template <class T>
void fill_with(cudaStream_t stream, void* x, std::int64_t count, T value) {
  fill_kernel<<<strided_grid(count), threads, 0, stream>>>(static_cast<T*>(x), count, value);
}

}  // namespace

void fill(cudaStream_t stream, void* x, Element type, std::int64_t count, double value) {
  if (count == 0) return;
  if (value == 0.0) return check(cudaMemsetAsync(x, 0, static_cast<std::size_t>(count) * size_of(type), stream), "fill");
  switch (type) {
    case Element::f32: fill_with(stream, x, count, static_cast<float>(value)); break;
    case Element::bf16: fill_with(stream, x, count, __float2bfloat16_rn(static_cast<float>(value))); break;
    case Element::f64: fill_with(stream, x, count, value); break;
    case Element::i32: fill_with(stream, x, count, static_cast<std::int32_t>(value)); break;
    case Element::i64: fill_with(stream, x, count, static_cast<std::int64_t>(value)); break;
    case Element::u8: fill_with(stream, x, count, static_cast<std::uint8_t>(value)); break;
    default: refuse("fill", "zero for fp8 types");
  }
  check_launch("fill");
}

void cast(cudaStream_t stream, const void* from, Element from_type, void* to, Element to_type, std::int64_t count) {
  if (count == 0 || (from == to && from_type == to_type)) return;
  if (from_type == to_type) {
    return check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(count) * size_of(to_type), cudaMemcpyDeviceToDevice, stream), "cast");
  }
  with_real("cast", from_type, [&](auto source) {
    with_real("cast", to_type, [&](auto target) {
      using From = decltype(source);
      using To = decltype(target);
      if constexpr (!std::is_same_v<From, To>) cast_all(stream, static_cast<const From*>(from), static_cast<To*>(to), count);
    });
  });
  check_launch("cast");
}

void add(cudaStream_t stream, const void* a, const void* b, void* out, Element type, std::int64_t count) {
  if (count == 0) return;
  with_floating("add", type, [&](auto tag) {
    using T = decltype(tag);
    const auto* left = static_cast<const T*>(a);
    const auto* right = static_cast<const T*>(b);
    auto* sum = static_cast<T*>(out);
    const std::int64_t whole = aligned(a) && aligned(b) && aligned(out) ? count / width : 0;
    if (whole > 0) add8_kernel<<<grid(ceil_div(whole, threads)), threads, 0, stream>>>(left, right, sum, whole);
    const std::int64_t rest = count - whole * width;
    if (rest > 0) add_kernel<<<grid(ceil_div(rest, threads)), threads, 0, stream>>>(left, right, sum, whole * width, count);
  });
  check_launch("add");
}

}  // namespace troupe::cuda
