#include "src/device/cuda/kernels/dispatch.cuh"
#include "src/device/cuda/kernels/float8.hpp"
#include "src/device/cuda/kernels/float8_counts.cuh"
#include "src/device/cuda/kernels/float8_lines.hpp"
#include "src/device/cuda/kernels/reduce.cuh"

namespace troupe::cuda {
namespace {

constexpr int threads = 256;
constexpr std::int64_t column_rows = 64;  // of one block where each thread has a column

__device__ std::int64_t line_of(Lines by, std::int64_t i, std::int64_t columns) {
  return by == Lines::rows ? i / columns : by == Lines::columns ? i % columns : 0;
}

template <class T>
__global__ void amax_of_rows(const T* x, std::int64_t columns, float* amax) {
  __shared__ std::uint32_t room[threads / lanes];
  const T* row = x + blockIdx.x * columns;
  std::uint32_t found = 0;
  for (std::int64_t c = threadIdx.x; c < columns; c += threads) found = max(found, magnitude(widen(row[c])));
  found = over_block<Largest, threads>(found, room);
  if (threadIdx.x == 0) amax[blockIdx.x] = __uint_as_float(found);
}

template <class T>
__global__ void amax_of_columns(const T* x, std::int64_t rows, std::int64_t columns, float* amax) {
  const std::int64_t c = blockIdx.x * std::int64_t(threads) + threadIdx.x;
  if (c >= columns) return;
  const std::int64_t first = blockIdx.y * column_rows, last = min(first + column_rows, rows);
  std::uint32_t found = 0;
  for (std::int64_t r = first; r < last; ++r) found = max(found, magnitude(widen(x[r * columns + c])));
  atomicMax(reinterpret_cast<std::uint32_t*>(amax) + c, found);
}

/// The quotient in fp32 without its mantissa; what is not finite stays.
__global__ void powers_kernel(float* scales, std::int64_t count, float largest) {
  const std::int64_t i = blockIdx.x * std::int64_t(threads) + threadIdx.x;
  if (i >= count) return;
  const std::uint32_t bits = __float_as_uint(scale_of(scales[i], largest));
  scales[i] = __uint_as_float(bits >= 0x7f800000U ? bits : bits & 0x7f800000U);
}

template <Element E, class T>
__global__ void quantize_lines_kernel(const T* x, std::int64_t count, std::int64_t columns, Lines by, const float* scales, std::uint8_t* out,
                                      Float8Counts* counts) {
  std::uint32_t beyond = 0, strange = 0;
  for (std::int64_t i = blockIdx.x * std::int64_t(threads) + threadIdx.x; i < count; i += std::int64_t(gridDim.x) * threads) {
    const float scaled = widen(x[i]) * scales[line_of(by, i, columns)];
    look_at<E>(scaled, beyond, strange);
    out[i] = to_float8<E>(scaled);
  }
  if (counts != nullptr) tell(beyond, strange, counts);
}

template <Element E>
__global__ void dequantize_lines_kernel(const std::uint8_t* x, std::int64_t count, std::int64_t columns, Lines by, const float* scales, BFloat16* out) {
  for (std::int64_t i = blockIdx.x * std::int64_t(threads) + threadIdx.x; i < count; i += std::int64_t(gridDim.x) * threads)
    out[i] = __float2bfloat16_rn(from_float8<E>(x[i]) / scales[line_of(by, i, columns)]);
}

unsigned strided_grid(std::int64_t count) {
  const std::int64_t blocks = ceil_div(count, threads * 4), most = std::int64_t(multiprocessors()) * 16;
  return grid(blocks < most ? blocks : most);
}

std::int64_t lines_of(const LineMatrix& x) { return x.by == Lines::rows ? x.rows : x.by == Lines::columns ? x.columns : 1; }

template <class T>
void find_amaxes(cudaStream_t stream, const LineMatrix& x, float* found) {
  const auto* from = static_cast<const T*>(x.x);
  switch (x.by) {
    case Lines::all: return amax(stream, x.x, x.type, x.rows * x.columns, found, false);
    case Lines::rows: amax_of_rows<<<grid(x.rows), threads, 0, stream>>>(from, x.columns, found); return;
    case Lines::columns:
      check(cudaMemsetAsync(found, 0, static_cast<std::size_t>(x.columns) * sizeof(float), stream), "quantize_lines");
      amax_of_columns<<<dim3(grid(ceil_div(x.columns, threads)), grid(ceil_div(x.rows, column_rows))), threads, 0, stream>>>(from, x.rows, x.columns, found);
  }
}

}  // namespace

void quantize_lines(cudaStream_t stream, const LineMatrix& x, float* scales, void* out, Element format, Float8Counts* counts) {
  const std::int64_t count = x.rows * x.columns;
  if (count == 0) return;
  with_floating("quantize_lines", x.type, [&](auto tag) {
    with_float8("quantize_lines", format, [&](auto e) {
      using T = decltype(tag);
      constexpr Element E = decltype(e)::value;
      find_amaxes<T>(stream, x, scales);
      powers_kernel<<<grid(ceil_div(lines_of(x), threads)), threads, 0, stream>>>(scales, lines_of(x), Float8<E>::largest);
      quantize_lines_kernel<E>
          <<<strided_grid(count), threads, 0, stream>>>(static_cast<const T*>(x.x), count, x.columns, x.by, scales, static_cast<std::uint8_t*>(out), counts);
    });
  });
  check_launch("quantize_lines");
}

void dequantize_lines(cudaStream_t stream, const LineMatrix& x, const float* scales, void* out) {
  const std::int64_t count = x.rows * x.columns;
  if (count == 0) return;
  with_float8("dequantize_lines", x.type, [&](auto e) {
    dequantize_lines_kernel<decltype(e)::value>
        <<<strided_grid(count), threads, 0, stream>>>(static_cast<const std::uint8_t*>(x.x), count, x.columns, x.by, scales, static_cast<BFloat16*>(out));
  });
  check_launch("dequantize_lines");
}

}  // namespace troupe::cuda
