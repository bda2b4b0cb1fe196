#include "src/device/cuda/kernels/dispatch.cuh"
#include "src/device/cuda/kernels/reduce.cuh"
#include "src/device/cuda/kernels/rms_norm.hpp"

namespace troupe::cuda {
namespace {

constexpr int rows_together = 2;  // rows whose loads are in flight at once
constexpr int most_blocks_an_sm = 4;
constexpr int plain_threads = 256;
constexpr int partial_threads = 256;

/// A thread owns 8 columns of every row that its block walks through, and their part of dw. `threads` × 8 ≥ columns.
template <class T, int threads, int rows_at_once, int blocks>
__global__ void __launch_bounds__(threads, blocks) backward_kernel(const RmsNormBackward call) {
  constexpr int warps = threads / lanes;
  __shared__ float room[2][rows_at_once][warps];
  const std::int64_t column = static_cast<std::int64_t>(threadIdx.x) * width;
  const bool inside = column < call.columns;
  const auto* dy = static_cast<const T*>(call.dy) + column;
  const auto* x = static_cast<const T*>(call.x) + column;
  const auto* residual = static_cast<const T*>(call.residual) + column;
  auto* dx = static_cast<T*>(call.dx) + column;
  const Packed<T> weight = inside ? load8(static_cast<const T*>(call.w) + column) : zero8<T>();
  float dw[width] = {};
  std::uint32_t found = 0;
  int turn = 0;
  for (std::int64_t row = blockIdx.x * std::int64_t(rows_at_once); row < call.rows; row += std::int64_t(gridDim.x) * rows_at_once, turn ^= 1) {
    Packed<T> loaded_dy[rows_at_once], loaded_x[rows_at_once], loaded_residual[rows_at_once];
    float r[rows_at_once], along[rows_at_once];
#pragma unroll
    for (int i = 0; i < rows_at_once; ++i) {
      const bool there = inside && row + i < call.rows;
      loaded_dy[i] = there ? load8(dy + (row + i) * call.columns) : zero8<T>();
      loaded_x[i] = there ? load8(x + (row + i) * call.columns) : zero8<T>();
      loaded_residual[i] = there && call.residual != nullptr ? load8(residual + (row + i) * call.columns) : zero8<T>();
      r[i] = row + i < call.rows ? call.rstd[row + i] : 0.0F;
    }
#pragma unroll
    for (int i = 0; i < rows_at_once; ++i) {
      float a[width], b[width], w[width];
      unpack(loaded_dy[i], a);
      unpack(loaded_x[i], b);
      unpack(weight, w);
      along[i] = 0;
#pragma unroll
      for (int j = 0; j < width; ++j) {
        along[i] += a[j] * w[j] * b[j];
        dw[j] += a[j] * b[j] * r[i];
      }
      along[i] = over_warp<Sum>(along[i]);
      if (threadIdx.x % lanes == 0) room[turn][i][threadIdx.x / lanes] = along[i];
    }
    __syncthreads();  // one barrier a turn: the next turn writes the other room
#pragma unroll
    for (int i = 0; i < rows_at_once; ++i) {
      float sum = 0;
#pragma unroll
      for (int j = 0; j < warps; ++j) sum += room[turn][i][j];
      const float pull = sum * r[i] * r[i] * r[i] / static_cast<float>(call.columns);
      float a[width], b[width], w[width], c[width];
      unpack(loaded_dy[i], a);
      unpack(loaded_x[i], b);
      unpack(weight, w);
      unpack(loaded_residual[i], c);
#pragma unroll
      for (int j = 0; j < width; ++j) a[j] = c[j] + (a[j] * w[j] * r[i] - b[j] * pull);
      if (!inside || row + i >= call.rows) continue;
      const Packed<T> stored = pack<T>(a);
      store8(dx + (row + i) * call.columns, stored);
      unpack(stored, a);
#pragma unroll
      for (float value : a) found = max(found, magnitude(value));
    }
  }
  if (inside) {
    auto* partial = static_cast<float*>(call.scratch) + blockIdx.x * call.columns + column;
    store8(partial, pack<float>(dw));
  }
  if (call.amax != nullptr) raise_amax(call.amax, found);
}

/// dw (+)= Σ over the blocks' partial sums, in their order.
__global__ void __launch_bounds__(partial_threads)
    sum_partials_kernel(const float* __restrict__ partial, std::int64_t count, std::int64_t columns, float* dw, bool accumulate) {
  // 32 columns a block, 8 parts of the rows side by side
  __shared__ float room[partial_threads / lanes][lanes];
  const int lane = static_cast<int>(threadIdx.x) % lanes, part = static_cast<int>(threadIdx.x) / lanes;
  const std::int64_t column = blockIdx.x * std::int64_t(lanes) + lane;
  float sum = 0;
  if (column < columns) {
    for (std::int64_t i = part; i < count; i += partial_threads / lanes) sum += partial[i * columns + column];
  }
  room[part][lane] = sum;
  __syncthreads();
  if (part != 0 || column >= columns) return;
  for (int i = 1; i < partial_threads / lanes; ++i) sum += room[i][lane];
  dw[column] = accumulate ? dw[column] + sum : sum;
}

/// Any row length: dx by a block a row.
template <class T>
__global__ void __launch_bounds__(plain_threads) backward_plain_kernel(const RmsNormBackward call) {
  __shared__ float room[plain_threads / lanes];
  const std::int64_t offset = blockIdx.x * call.columns;
  const auto* dy = static_cast<const T*>(call.dy) + offset;
  const auto* x = static_cast<const T*>(call.x) + offset;
  const auto* w = static_cast<const T*>(call.w);
  const float r = call.rstd[blockIdx.x];
  float along = 0;
  for (std::int64_t i = threadIdx.x; i < call.columns; i += plain_threads) along += widen(dy[i]) * widen(w[i]) * widen(x[i]);
  const float pull = over_block<Sum, plain_threads>(along, room) * r * r * r / static_cast<float>(call.columns);
  std::uint32_t found = 0;
  for (std::int64_t i = threadIdx.x; i < call.columns; i += plain_threads) {
    const float before = call.residual != nullptr ? widen(static_cast<const T*>(call.residual)[offset + i]) : 0.0F;
    const T value = narrow<T>(before + (widen(dy[i]) * widen(w[i]) * r - widen(x[i]) * pull));
    static_cast<T*>(call.dx)[offset + i] = value;
    found = max(found, magnitude(widen(value)));
  }
  if (call.amax != nullptr) raise_amax(call.amax, found);
}

/// Partial dw of a run of rows, a thread a column.
template <class T>
__global__ void __launch_bounds__(plain_threads) weight_plain_kernel(const RmsNormBackward call, std::int64_t rows_a_block) {
  const std::int64_t column = blockIdx.y * std::int64_t(plain_threads) + threadIdx.x;
  if (column >= call.columns) return;
  const std::int64_t first = blockIdx.x * rows_a_block, last = first + rows_a_block < call.rows ? first + rows_a_block : call.rows;
  float sum = 0;
  for (std::int64_t row = first; row < last; ++row) {
    sum +=
        widen(static_cast<const T*>(call.dy)[row * call.columns + column]) * widen(static_cast<const T*>(call.x)[row * call.columns + column]) * call.rstd[row];
  }
  static_cast<float*>(call.scratch)[blockIdx.x * call.columns + column] = sum;
}

int partial_blocks() { return multiprocessors() * most_blocks_an_sm; }

template <class T, int threads, int rows_at_once = rows_together,
          int blocks_an_sm = (threads <= 256   ? 4
                              : threads <= 512 ? 2
                                               : 1)>
std::int64_t launch(cudaStream_t stream, const RmsNormBackward& call) {
  static_assert(blocks_an_sm <= most_blocks_an_sm);
  const std::int64_t most = std::int64_t(multiprocessors()) * blocks_an_sm, needed = ceil_div(call.rows, rows_at_once), blocks = needed < most ? needed : most;
  backward_kernel<T, threads, rows_at_once, std::is_same_v<T, float> ? 1 : blocks_an_sm><<<grid(blocks), threads, 0, stream>>>(call);
  return blocks;
}

template <class T>
std::int64_t launch_plain(cudaStream_t stream, const RmsNormBackward& call) {
  const std::int64_t most = partial_blocks(), rows_a_block = ceil_div(call.rows, most), blocks = ceil_div(call.rows, rows_a_block);
  // The weight's gradient first: dx may overwrite dy.
  weight_plain_kernel<T><<<dim3(grid(blocks), grid(ceil_div(call.columns, plain_threads))), plain_threads, 0, stream>>>(call, rows_a_block);
  backward_plain_kernel<T><<<grid(call.rows), plain_threads, 0, stream>>>(call);
  return blocks;
}

template <class T>
std::int64_t launch_for(cudaStream_t stream, const RmsNormBackward& call) {
  const bool vectors = call.columns % width == 0 && aligned(call.dy) && aligned(call.x) && aligned(call.w) && aligned(call.dx) && aligned(call.residual) &&
                       aligned(call.scratch);
  if (!vectors || call.columns > 1024 * width) return launch_plain<T>(stream, call);
  if (call.columns <= 128 * width) return launch<T, 128>(stream, call);
  if (call.columns <= 256 * width) return launch<T, 256>(stream, call);
  if (call.columns <= 512 * width) return launch<T, 512>(stream, call);
  return launch<T, 1024>(stream, call);
}

}  // namespace

std::size_t rms_norm_backward_scratch(std::int64_t columns) { return static_cast<std::size_t>(partial_blocks() * columns) * sizeof(float); }

void rms_norm_backward(cudaStream_t stream, const RmsNormBackward& call) {
  if (call.columns == 0) return;
  std::int64_t partials = 0;
  if (call.rows > 0) {
    with_floating("rms_norm_backward", call.type, [&](auto tag) { partials = launch_for<decltype(tag)>(stream, call); });
    check_launch("rms_norm_backward");
  }
  sum_partials_kernel<<<grid(ceil_div(call.columns, lanes)), partial_threads, 0, stream>>>(static_cast<const float*>(call.scratch), partials, call.columns,
                                                                                           call.dw, call.accumulate_dw);
  check_launch("rms_norm_backward");
}

}  // namespace troupe::cuda
