#include "src/device/cuda/kernels/dispatch.cuh"
#include "src/device/cuda/kernels/reduce.cuh"
#include "src/device/cuda/kernels/swiglu.hpp"
#include "src/device/cuda/kernels/transpose_tile.cuh"

namespace troupe::cuda {
namespace {

constexpr int plain_threads = 256;
constexpr int forward_at_once = 4;  // vectors of gate and of up in flight a thread
constexpr int most_threads = 512;   // of the forward
constexpr int tile_rows = 128, tile_columns = 64;
constexpr int tile_blocks = 3;  // blocks of the backward that fit a multiprocessor's registers

/// A thread has 4 rows of a vector.
__host__ __device__ constexpr int tile_threads(int rows, int columns) { return rows / 4 * (columns / width); }

__device__ float sigmoid(float x) { return __fdividef(1.0F, 1.0F + __expf(-x)); }

template <class T>
__device__ Packed<T> gated(const Packed<T>& gate, const Packed<T>& up) {
  float g[width], u[width];
  unpack(gate, g);
  unpack(up, u);
#pragma unroll
  for (int i = 0; i < width; ++i) g[i] = g[i] * sigmoid(g[i]) * u[i];
  return pack<T>(g);
}

/// grid: rows × parts of a row.
template <class T, int at_once>
__global__ void __launch_bounds__(most_threads) swiglu_kernel(const Swiglu call) {
  const int threads = static_cast<int>(blockDim.x);
  const std::int64_t row = blockIdx.x, first = (blockIdx.y * std::int64_t(threads * at_once) + threadIdx.x) * width;
  const auto* gate = static_cast<const T*>(call.gate) + row * call.stride;
  const auto* up = static_cast<const T*>(call.up) + row * call.stride;
  Packed<T> g[at_once], u[at_once];
#pragma unroll
  for (int i = 0; i < at_once; ++i) {
    const std::int64_t column = first + i * threads * width;
    if (column < call.columns) g[i] = load8(gate + column), u[i] = load8(up + column);
  }
  std::uint32_t found = 0;
#pragma unroll
  for (int i = 0; i < at_once; ++i) {
    const std::int64_t column = first + i * threads * width;
    if (column >= call.columns) continue;
    const Packed<T> value = gated(g[i], u[i]);
    store8(static_cast<T*>(call.out) + row * call.columns + column, value);
    found = max(found, largest_magnitude(value));
  }
  if (call.amax != nullptr) raise_amax(call.amax, found);
}

template <class T>
__global__ void swiglu_plain_kernel(const Swiglu call) {
  const std::int64_t i = blockIdx.x * std::int64_t(plain_threads) + threadIdx.x;
  std::uint32_t found = 0;
  if (i < call.rows * call.columns) {
    const std::int64_t at = i / call.columns * call.stride + i % call.columns;
    const float g = widen(static_cast<const T*>(call.gate)[at]);
    const T value = narrow<T>(g * sigmoid(g) * widen(static_cast<const T*>(call.up)[at]));
    static_cast<T*>(call.out)[i] = value;
    found = magnitude(widen(value));
  }
  if (call.amax != nullptr) raise_amax(call.amax, found);
}

/// One amax for both gradients, or one for each.
__device__ void raise_amaxes(const SwigluBackward& call, std::uint32_t gate, std::uint32_t up) {
  if (!call.amax_apart) gate = max(gate, up);
  if (call.amax_apart && call.up_amax != nullptr) raise_amax(call.up_amax, up);
  if (call.amax != nullptr) raise_amax(call.amax, gate);
}

struct Gradients {
  float gate, up, out;
};
__device__ Gradients gradients_of(float d, float g, float u) {
  const float s = sigmoid(g);
  return {d * u * s * (1.0F + g * (1.0F - s)), d * g * s, g * s * u};
}

/// A block: `rows` × `columns`; a thread: 4 rows × 8 columns.
template <class T, int rows, int columns, int blocks>
__global__ void __launch_bounds__(tile_threads(rows, columns), blocks) backward_kernel(const SwigluBackward call) {
  __shared__ TransposeTile<rows, columns, width> tile;
  constexpr int threads = tile_threads(rows, columns), groups = columns / width;
  const std::int64_t tiles = (call.columns + columns - 1) / columns;
  const std::int64_t row0 = blockIdx.x / tiles * rows, column0 = blockIdx.x % tiles * columns;
  const int group = static_cast<int>(threadIdx.x) % groups, quad = static_cast<int>(threadIdx.x) / groups;
  const std::int64_t row = row0 + quad * 4, column = column0 + group * width;
  Packed<T> d[4], g[4], u[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const bool inside = row + i < call.rows && column < call.columns;
    d[i] = inside ? load8(static_cast<const T*>(call.dout) + (row + i) * call.columns + column) : zero8<T>();
    g[i] = inside ? load8(static_cast<const T*>(call.gate) + (row + i) * call.stride + column) : zero8<T>();
    u[i] = inside ? load8(static_cast<const T*>(call.up) + (row + i) * call.stride + column) : zero8<T>();
  }
  const float s = call.transposed != nullptr ? scale_of(*call.out_amax, Float8<Element::e4m3>::largest) : 0.0F;
  std::uint32_t found_gate = 0, found_up = 0, codes[4][2];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float dv[width], gv[width], uv[width];
    unpack(d[i], dv);
    unpack(g[i], gv);
    unpack(u[i], uv);
#pragma unroll
    for (int j = 0; j < width; ++j) {
      const Gradients result = gradients_of(dv[j], gv[j], uv[j]);
      gv[j] = result.gate, uv[j] = result.up, dv[j] = rounded<T>(result.out) * s;
    }
    codes[i][0] = to_float8<Element::e4m3>(dv[0], dv[1], dv[2], dv[3]);
    codes[i][1] = to_float8<Element::e4m3>(dv[4], dv[5], dv[6], dv[7]);
    if (row + i >= call.rows || column >= call.columns) continue;
    const Packed<T> dgate = pack<T>(gv), dup = pack<T>(uv);
    store8(static_cast<T*>(call.dgate) + (row + i) * call.gradient_stride + column, dgate);
    store8(static_cast<T*>(call.dup) + (row + i) * call.gradient_stride + column, dup);
    found_gate = max(found_gate, largest_magnitude(dgate));
    found_up = max(found_up, largest_magnitude(dup));
  }
  raise_amaxes(call, found_gate, found_up);
  if (call.transposed == nullptr) return;
  std::uint32_t quads[width];
  transpose_quads(codes, quads);
#pragma unroll
  for (int i = 0; i < width; ++i) tile.put(group * width + i, quad, quads[i]);
  __syncthreads();
  constexpr int chunks = rows / 16;
#pragma unroll
  for (int i = 0; i < columns * chunks / threads; ++i) {
    const int at = i * threads + static_cast<int>(threadIdx.x), c = at / chunks, chunk = at % chunks;
    if (column0 + c >= call.columns || row0 + chunk * 16 >= call.rows) continue;
    *reinterpret_cast<uint4*>(static_cast<std::uint8_t*>(call.transposed) + (column0 + c) * call.rows + row0 + chunk * 16) = tile.chunk(c, chunk);
  }
}

template <class T>
__global__ void backward_plain_kernel(const SwigluBackward call) {
  const std::int64_t i = blockIdx.x * std::int64_t(plain_threads) + threadIdx.x;
  std::uint32_t found_gate = 0, found_up = 0;
  if (i < call.rows * call.columns) {
    const std::int64_t row = i / call.columns, column = i % call.columns, at = row * call.stride + column, to = row * call.gradient_stride + column;
    const Gradients result =
        gradients_of(widen(static_cast<const T*>(call.dout)[i]), widen(static_cast<const T*>(call.gate)[at]), widen(static_cast<const T*>(call.up)[at]));
    const T dgate = narrow<T>(result.gate), dup = narrow<T>(result.up);
    static_cast<T*>(call.dgate)[to] = dgate;
    static_cast<T*>(call.dup)[to] = dup;
    found_gate = magnitude(widen(dgate));
    found_up = magnitude(widen(dup));
    if (call.transposed != nullptr) {
      const float s = scale_of(*call.out_amax, Float8<Element::e4m3>::largest);
      static_cast<std::uint8_t*>(call.transposed)[column * call.rows + row] = to_float8<Element::e4m3>(rounded<T>(result.out) * s);
    }
  }
  raise_amaxes(call, found_gate, found_up);
}

}  // namespace

void swiglu(cudaStream_t stream, const Swiglu& call) {
  if (call.rows == 0 || call.columns == 0) return;
  const bool vectors = call.columns % width == 0 && call.stride % width == 0 && aligned(call.gate) && aligned(call.up) && aligned(call.out);
  with_floating("swiglu", call.type, [&](auto tag) {
    using T = decltype(tag);
    if (vectors) {
      // As few parts as threads allow, and no more threads than these parts need.
      const std::int64_t whole = call.columns / width, parts = ceil_div(whole, most_threads * forward_at_once);
      const std::int64_t threads = ceil_div(ceil_div(whole, parts * forward_at_once), lanes) * lanes;
      swiglu_kernel<T, forward_at_once><<<dim3(grid(call.rows), grid(parts)), grid(threads), 0, stream>>>(call);
    } else {
      swiglu_plain_kernel<T><<<grid(ceil_div(call.rows * call.columns, plain_threads)), plain_threads, 0, stream>>>(call);
    }
  });
  check_launch("swiglu");
}

void swiglu_backward(cudaStream_t stream, const SwigluBackward& call) {
  if (call.rows == 0 || call.columns == 0) return;
  if (call.transposed != nullptr && call.out_amax == nullptr) refuse("swiglu_backward", "the forward's amax with a transposed result");
  const bool vectors = call.columns % width == 0 && call.stride % width == 0 && call.gradient_stride % width == 0 && aligned(call.dout) && aligned(call.gate) &&
                       aligned(call.up) && aligned(call.dgate) && aligned(call.dup) && aligned(call.transposed) &&
                       (call.transposed == nullptr || call.rows % 16 == 0);
  with_floating("swiglu_backward", call.type, [&](auto tag) {
    using T = decltype(tag);
    if (vectors) {
      backward_kernel<T, tile_rows, tile_columns, std::is_same_v<T, float> ? 1 : tile_blocks>
          <<<grid(ceil_div(call.rows, tile_rows) * ceil_div(call.columns, tile_columns)), tile_threads(tile_rows, tile_columns), 0, stream>>>(call);
    } else {
      backward_plain_kernel<T><<<grid(ceil_div(call.rows * call.columns, plain_threads)), plain_threads, 0, stream>>>(call);
    }
  });
  check_launch("swiglu_backward");
}

}  // namespace troupe::cuda
