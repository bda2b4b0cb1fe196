#include "src/device/cuda/kernels/dispatch.cuh"
#include "src/device/cuda/kernels/reduce.cuh"
#include "src/device/cuda/kernels/rms_norm.hpp"

namespace troupe::cuda {
namespace {

constexpr int plain_threads = 256;

/// `warps` warps a row, which they hold in registers: `vectors` × 8 elements a lane. Rows of at most warps × vectors × 256 elements.
template <int warps, int vectors, class T>
__global__ void __launch_bounds__(warps < 4 ? 128 : warps * lanes) rms_norm_kernel(const RmsNorm call) {
  constexpr int rows_a_block = warps < 4 ? 4 / warps : 1;
  __shared__ float room[rows_a_block][warps];
  const int warp = static_cast<int>(threadIdx.x) / lanes, lane = static_cast<int>(threadIdx.x) % lanes;
  const std::int64_t row = blockIdx.x * std::int64_t(rows_a_block) + warp / warps;
  const std::int64_t offset = row * call.columns;
  const bool inside = row < call.rows;
  const int part = warp % warps;
  const auto column = [&](int i) { return static_cast<std::int64_t>((i * warps + part) * lanes + lane) * width; };
  Packed<T> loaded[vectors];
#pragma unroll
  for (int i = 0; i < vectors; ++i) loaded[i] = inside && column(i) < call.columns ? load8(static_cast<const T*>(call.x) + offset + column(i)) : zero8<T>();
  float sum = 0;
#pragma unroll
  for (int i = 0; i < vectors; ++i) {
    float v[width];
    unpack(loaded[i], v);
#pragma unroll
    for (float value : v) sum += value * value;
  }
  sum = over_warp<Sum>(sum);
  if constexpr (warps > 1) {
    if (lane == 0) room[warp / warps][part] = sum;
    __syncthreads();
    sum = 0;
#pragma unroll
    for (int i = 0; i < warps; ++i) sum += room[warp / warps][i];
  }
  const float r = rsqrtf(sum / static_cast<float>(call.columns) + call.eps);
  if (inside && part == 0 && lane == 0) call.rstd[row] = r;
  std::uint32_t found = 0;
#pragma unroll
  for (int i = 0; i < vectors; ++i) {
    if (!inside || column(i) >= call.columns) continue;
    float v[width], w[width];
    unpack(loaded[i], v);
    unpack(load8(static_cast<const T*>(call.w) + column(i)), w);
#pragma unroll
    for (int j = 0; j < width; ++j) v[j] = v[j] * r * w[j];
    const Packed<T> stored = pack<T>(v);
    if (call.y != nullptr) store8(static_cast<T*>(call.y) + offset + column(i), stored);
    unpack(stored, v);
#pragma unroll
    for (float value : v) found = max(found, magnitude(value));
  }
  if (call.amax != nullptr) raise_amax(call.amax, found);
}

/// Any row length; a block a row.
template <class T>
__global__ void __launch_bounds__(plain_threads) rms_norm_plain_kernel(const RmsNorm call) {
  __shared__ float room[plain_threads / lanes];
  const std::int64_t offset = blockIdx.x * call.columns;
  const auto* x = static_cast<const T*>(call.x) + offset;
  float sum = 0;
  for (std::int64_t i = threadIdx.x; i < call.columns; i += plain_threads) sum += widen(x[i]) * widen(x[i]);
  sum = over_block<Sum, plain_threads>(sum, room);
  const float r = rsqrtf(sum / static_cast<float>(call.columns) + call.eps);
  if (threadIdx.x == 0) call.rstd[blockIdx.x] = r;
  std::uint32_t found = 0;
  for (std::int64_t i = threadIdx.x; i < call.columns; i += plain_threads) {
    const T value = narrow<T>(widen(x[i]) * r * widen(static_cast<const T*>(call.w)[i]));
    if (call.y != nullptr) static_cast<T*>(call.y)[offset + i] = value;
    found = max(found, magnitude(widen(value)));
  }
  if (call.amax != nullptr) raise_amax(call.amax, found);
}

template <int warps, int vectors, class T>
void launch(cudaStream_t stream, const RmsNorm& call) {
  constexpr int rows_a_block = warps < 4 ? 4 / warps : 1;
  rms_norm_kernel<warps, vectors, T><<<grid(ceil_div(call.rows, rows_a_block)), rows_a_block * warps * lanes, 0, stream>>>(call);
}

template <class T>
void launch_for(cudaStream_t stream, const RmsNorm& call) {
  constexpr int step = lanes * width;
  const std::int64_t units = ceil_div(call.columns, step);
  const bool vectors = call.columns % width == 0 && aligned(call.x) && aligned(call.w) && aligned(call.y);
  if (!vectors || units > 64) {
    rms_norm_plain_kernel<T><<<grid(call.rows), plain_threads, 0, stream>>>(call);
  } else if (units <= 4) {
    launch<1, 4, T>(stream, call);
  } else if (units <= 8) {
    launch<2, 4, T>(stream, call);
  } else if (units <= 16) {
    launch<4, 4, T>(stream, call);
  } else if (units <= 32) {
    launch<4, 8, T>(stream, call);
  } else {
    launch<8, 8, T>(stream, call);
  }
}

}  // namespace

void rms_norm(cudaStream_t stream, const RmsNorm& call) {
  if (call.rows == 0 || call.columns == 0) return;
  with_floating("rms_norm", call.type, [&](auto tag) { launch_for<decltype(tag)>(stream, call); });
  check_launch("rms_norm");
}

}  // namespace troupe::cuda
