#include "src/device/cuda/kernels/dispatch.cuh"
#include "src/device/cuda/kernels/float8.hpp"
#include "src/device/cuda/kernels/float8_counts.cuh"
#include "src/device/cuda/kernels/reduce.cuh"

namespace troupe::cuda {
namespace {

constexpr int threads = 256;
constexpr int unroll = 4;  // loads in flight a thread

template <class T>
__global__ void amax_kernel(const T* __restrict__ x, std::int64_t count, bool vectors, float* amax) {
  std::uint32_t found = 0;
  const std::int64_t whole = vectors ? count / width : 0;
  const std::int64_t step = std::int64_t(gridDim.x) * threads;
  const std::int64_t start = blockIdx.x * std::int64_t(threads) + threadIdx.x;
  for (std::int64_t i = start; i < whole; i += step * unroll) {
    Packed<T> loaded[unroll];
#pragma unroll
    for (int j = 0; j < unroll; ++j) loaded[j] = i + j * step < whole ? load8(x + (i + j * step) * width) : zero8<T>();
#pragma unroll
    for (int j = 0; j < unroll; ++j) {
      float values[width];
      unpack(loaded[j], values);
#pragma unroll
      for (float value : values) found = max(found, magnitude(value));
    }
  }
  for (std::int64_t i = whole * width + start; i < count; i += step) found = max(found, magnitude(widen(x[i])));
  raise_amax(amax, found);
}

__global__ void scale_kernel(const float* amax, float largest, float* scale, float* inverse, std::int64_t count) {
  const std::int64_t i = blockIdx.x * std::int64_t(blockDim.x) + threadIdx.x;
  if (i >= count) return;
  const float value = scale_of(amax[i], largest);
  scale[i] = value;
  if (inverse != nullptr) inverse[i] = static_cast<float>(1.0 / static_cast<double>(value));
}

__global__ void inverse_kernel(const float* a, const float* b, float* inverse) {
  if (threadIdx.x < 2) inverse[threadIdx.x * 4] = static_cast<float>(1.0 / static_cast<double>(threadIdx.x == 0 ? *a : *b));
}

/// `counted`: what does not fit is added to *counts.
template <Element E, bool counted, class T>
__global__ void quantize8_kernel(const T* __restrict__ x, const float* __restrict__ scale, std::uint8_t* __restrict__ out, std::int64_t vectors,
                                 Float8Counts* counts) {
  const std::int64_t first = blockIdx.x * std::int64_t(threads) * 2 + threadIdx.x;
  Packed<T> loaded[2];
#pragma unroll
  for (int j = 0; j < 2; ++j) loaded[j] = first + j * threads < vectors ? load8(x + (first + j * threads) * width) : zero8<T>();
  const float s = *scale;
  std::uint32_t beyond = 0, strange = 0;
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    if (first + j * threads >= vectors) break;
    float v[width];
    unpack(loaded[j], v);
    if constexpr (counted) {
#pragma unroll
      for (float value : v) look_at<E>(value * s, beyond, strange);
    }
    const uint2 codes = make_uint2(to_float8<E>(v[0] * s, v[1] * s, v[2] * s, v[3] * s), to_float8<E>(v[4] * s, v[5] * s, v[6] * s, v[7] * s));
    *reinterpret_cast<uint2*>(out + (first + j * threads) * width) = codes;
  }
  if constexpr (counted) tell(beyond, strange, counts);
}

template <Element E, class T>
__global__ void quantize_kernel(const T* x, const float* scale, std::uint8_t* out, std::int64_t first, std::int64_t count, Float8Counts* counts) {
  const std::int64_t i = first + blockIdx.x * std::int64_t(threads) + threadIdx.x;
  std::uint32_t beyond = 0, strange = 0;
  if (i < count) {
    const float scaled = widen(x[i]) * *scale;
    look_at<E>(scaled, beyond, strange);
    out[i] = to_float8<E>(scaled);
  }
  if (counts != nullptr) tell(beyond, strange, counts);
}

}  // namespace

void amax(cudaStream_t stream, const void* x, Element type, std::int64_t count, float* amax, bool accumulate) {
  if (!accumulate) check(cudaMemsetAsync(amax, 0, sizeof(float), stream), "amax");
  if (count == 0) return;
  with_floating("amax", type, [&](auto tag) {
    using T = decltype(tag);
    const std::int64_t most = std::int64_t(multiprocessors()) * 8, blocks = ceil_div(count, threads * width * unroll);
    amax_kernel<<<grid(blocks < most ? blocks : most), threads, 0, stream>>>(static_cast<const T*>(x), count, aligned(x), amax);
  });
  check_launch("amax");
}

void scale_from_amax(cudaStream_t stream, const float* amax, Element format, float* scale, float* inverse, std::int64_t count) {
  if (count == 0) return;
  with_float8("scale_from_amax", format, [&](auto e) {
    scale_kernel<<<grid(ceil_div(count, threads)), threads, 0, stream>>>(amax, Float8<decltype(e)::value>::largest, scale, inverse, count);
  });
  check_launch("scale_from_amax");
}

void inverse_scales(cudaStream_t stream, const float* a, const float* b, float* inverse) {
  inverse_kernel<<<1, lanes, 0, stream>>>(a, b, inverse);
  check_launch("inverse_scales");
}

void quantize(cudaStream_t stream, const void* x, Element type, const float* scale, void* out, Element format, std::int64_t count, Float8Counts* counts) {
  if (count == 0) return;
  with_floating("quantize", type, [&](auto tag) {
    with_float8("quantize", format, [&](auto e) {
      using T = decltype(tag);
      constexpr Element E = decltype(e)::value;
      const auto* from = static_cast<const T*>(x);
      auto* codes = static_cast<std::uint8_t*>(out);
      const std::int64_t whole = aligned(x) && aligned(out, 8) ? count / width : 0;
      const unsigned blocks = grid(ceil_div(whole, threads * 2));
      if (whole > 0 && counts != nullptr) quantize8_kernel<E, true><<<blocks, threads, 0, stream>>>(from, scale, codes, whole, counts);
      if (whole > 0 && counts == nullptr) quantize8_kernel<E, false><<<blocks, threads, 0, stream>>>(from, scale, codes, whole, counts);
      const std::int64_t rest = count - whole * width;
      if (rest > 0) quantize_kernel<E><<<grid(ceil_div(rest, threads)), threads, 0, stream>>>(from, scale, codes, whole * width, count, counts);
    });
  });
  check_launch("quantize");
}

}  // namespace troupe::cuda
