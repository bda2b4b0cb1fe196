#include "src/device/cuda/kernels/dispatch.cuh"
#include "src/device/cuda/kernels/transpose.hpp"
#include "src/device/cuda/kernels/transpose_tile.cuh"

namespace troupe::cuda {
namespace {

constexpr int plain_threads = 256;
constexpr int cast_rows = 128, cast_columns = 64;   // 8 lanes × 8 elements
constexpr int byte_rows = 256, byte_columns = 128;  // 8 lanes × 16 bytes

/// A thread has 4 rows of a vector of `elements` columns.
__host__ __device__ constexpr int tile_threads(int rows, int columns, int elements) { return rows / 4 * (columns / elements); }

/// Writes the tile's columns, 16 rows a store: cast_rows bytes in a row of `to` [columns, rows].
template <int columns, int threads, class Tile>
__device__ void write_columns(const Tile& tile, std::uint8_t* to, std::int64_t row0, std::int64_t column0, std::int64_t rows, std::int64_t column_count) {
  constexpr int chunks = Tile::chunks;
#pragma unroll
  for (int i = 0; i < columns * chunks / threads; ++i) {
    const int at = i * threads + static_cast<int>(threadIdx.x), column = at / chunks, chunk = at % chunks;
    if (column0 + column >= column_count || row0 + chunk * 16 >= rows) continue;
    *reinterpret_cast<uint4*>(to + (column0 + column) * rows + row0 + chunk * 16) = tile.chunk(column, chunk);
  }
}

__device__ void publish(const CastTranspose& call, float s) {
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  if (call.scale != nullptr) *call.scale = s;
  if (call.inverse != nullptr) *call.inverse = static_cast<float>(1.0 / static_cast<double>(s));
  if (call.counts != nullptr && !(s > 0)) call.counts->non_finite += s == 0 ? 1.0 : static_cast<double>(call.rows * call.columns);
}

/// A block: `rows` × `columns`; a thread: 4 rows × 8 columns, all loads in flight at once.
template <Element E, class T, int rows, int columns, bool normed>
__global__ void __launch_bounds__(tile_threads(rows, columns, width)) cast_transpose_kernel(const CastTranspose call) {
  __shared__ TransposeTile<rows, columns, width> tile;
  constexpr int groups = columns / width;
  const std::int64_t tiles = (call.columns + columns - 1) / columns;
  const std::int64_t row0 = blockIdx.x / tiles * rows, column0 = blockIdx.x % tiles * columns;
  const int group = static_cast<int>(threadIdx.x) % groups, quad = static_cast<int>(threadIdx.x) / groups;
  const std::int64_t row = row0 + quad * 4, column = column0 + group * width;
  const bool inside = row < call.rows && column < call.columns;  // rows come in fours, columns in eights
  const auto* x = static_cast<const T*>(call.x) + row * call.columns + column;
  Packed<T> loaded[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) loaded[i] = inside ? load8(x + i * call.columns) : zero8<T>();
  float w[width], r[4];
  if constexpr (normed) {
    unpack(inside ? load8(static_cast<const T*>(call.norm_weight) + column) : zero8<T>(), w);
#pragma unroll
    for (int i = 0; i < 4; ++i) r[i] = inside ? call.rstd[row + i] : 0.0F;
  }
  const float s = scale_of(*call.amax, Float8<E>::largest);
  publish(call, s);
  std::uint32_t codes[4][2];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float v[width];
    unpack(loaded[i], v);
    if constexpr (normed) {
#pragma unroll
      for (int j = 0; j < width; ++j) v[j] = rounded<T>(v[j] * r[i] * w[j]);
    }
    codes[i][0] = to_float8<E>(v[0] * s, v[1] * s, v[2] * s, v[3] * s);
    codes[i][1] = to_float8<E>(v[4] * s, v[5] * s, v[6] * s, v[7] * s);
  }
  if (call.codes != nullptr && inside) {
    auto* to = static_cast<std::uint8_t*>(call.codes) + row * call.columns + column;
#pragma unroll
    for (int i = 0; i < 4; ++i) *reinterpret_cast<uint2*>(to + i * call.columns) = make_uint2(codes[i][0], codes[i][1]);
  }
  if (call.transposed == nullptr) return;
  std::uint32_t quads[width];
  transpose_quads(codes, quads);
#pragma unroll
  for (int i = 0; i < width; ++i) tile.put(group * width + i, quad, quads[i]);
  __syncthreads();
  write_columns<columns, tile_threads(rows, columns, width)>(tile, static_cast<std::uint8_t*>(call.transposed), row0, column0, call.rows, call.columns);
}

/// Any shape; a thread an element of a 32 × 32 tile.
template <Element E, class T>
__global__ void cast_transpose_plain_kernel(const CastTranspose call) {
  __shared__ std::uint8_t tile[lanes][lanes + 1];
  const std::int64_t tiles = (call.columns + lanes - 1) / lanes;
  const std::int64_t row0 = blockIdx.x / tiles * lanes, column0 = blockIdx.x % tiles * lanes;
  const float s = scale_of(*call.amax, Float8<E>::largest);
  publish(call, s);
  const int lane = static_cast<int>(threadIdx.x) % lanes, first = static_cast<int>(threadIdx.x) / lanes;
  for (int i = first; i < lanes; i += plain_threads / lanes) {
    const std::int64_t row = row0 + i, column = column0 + lane;
    if (row >= call.rows || column >= call.columns) continue;
    float value = widen(static_cast<const T*>(call.x)[row * call.columns + column]);
    if (call.rstd != nullptr) value = rounded<T>(value * call.rstd[row] * widen(static_cast<const T*>(call.norm_weight)[column]));
    const std::uint8_t code = to_float8<E>(value * s);
    if (call.codes != nullptr) static_cast<std::uint8_t*>(call.codes)[row * call.columns + column] = code;
    tile[i][lane] = code;
  }
  if (call.transposed == nullptr) return;
  __syncthreads();
  for (int i = first; i < lanes; i += plain_threads / lanes) {
    const std::int64_t row = row0 + lane, column = column0 + i;
    if (row < call.rows && column < call.columns) static_cast<std::uint8_t*>(call.transposed)[column * call.rows + row] = tile[lane][i];
  }
}

/// A block: `high` × `wide` bytes; a thread: 4 rows × 16 columns.
template <int high, int wide>
__global__ void __launch_bounds__(tile_threads(high, wide, 16))
    transpose_bytes_kernel(const std::uint8_t* __restrict__ from, std::int64_t rows, std::int64_t columns, std::uint8_t* __restrict__ to) {
  __shared__ TransposeTile<high, wide, 16> tile;
  constexpr int groups = wide / 16;
  const std::int64_t tiles = (columns + wide - 1) / wide;
  const std::int64_t row0 = blockIdx.x / tiles * high, column0 = blockIdx.x % tiles * wide;
  const int group = static_cast<int>(threadIdx.x) % groups, quad = static_cast<int>(threadIdx.x) / groups;
  const std::int64_t row = row0 + quad * 4, column = column0 + group * 16;
  const bool inside = row < rows && column < columns;
  uint4 loaded[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) loaded[i] = inside ? *reinterpret_cast<const uint4*>(from + (row + i) * columns + column) : make_uint4(0, 0, 0, 0);
  std::uint32_t words[4][4];
#pragma unroll
  for (int i = 0; i < 4; ++i) words[i][0] = loaded[i].x, words[i][1] = loaded[i].y, words[i][2] = loaded[i].z, words[i][3] = loaded[i].w;
  std::uint32_t quads[16];
  transpose_quads(words, quads);
#pragma unroll
  for (int i = 0; i < 16; ++i) tile.put(group * 16 + i, quad, quads[i]);
  __syncthreads();
  write_columns<wide, tile_threads(high, wide, 16)>(tile, to, row0, column0, rows, columns);
}

__global__ void transpose_bytes_plain_kernel(const std::uint8_t* from, std::int64_t rows, std::int64_t columns, std::uint8_t* to) {
  __shared__ std::uint8_t tile[lanes][lanes + 1];
  const std::int64_t tiles = (columns + lanes - 1) / lanes;
  const std::int64_t row0 = blockIdx.x / tiles * lanes, column0 = blockIdx.x % tiles * lanes;
  const int lane = static_cast<int>(threadIdx.x) % lanes, first = static_cast<int>(threadIdx.x) / lanes;
  for (int i = first; i < lanes; i += plain_threads / lanes) {
    if (row0 + i < rows && column0 + lane < columns) tile[i][lane] = from[(row0 + i) * columns + column0 + lane];
  }
  __syncthreads();
  for (int i = first; i < lanes; i += plain_threads / lanes) {
    if (row0 + lane < rows && column0 + i < columns) to[(column0 + i) * rows + row0 + lane] = tile[lane][i];
  }
}

}  // namespace

void cast_transpose(cudaStream_t stream, const CastTranspose& call) {
  if (call.rows == 0 || call.columns == 0) return;
  if ((call.rstd == nullptr) != (call.norm_weight == nullptr)) refuse("cast_transpose", "both rstd and norm_weight or neither");
  const bool vectors =
      call.rows % 16 == 0 && call.columns % width == 0 && aligned(call.x) && aligned(call.norm_weight) && aligned(call.codes, 8) && aligned(call.transposed);
  with_floating("cast_transpose", call.type, [&](auto tag) {
    with_float8("cast_transpose", call.format, [&](auto e) {
      using T = decltype(tag);
      constexpr Element E = decltype(e)::value;
      if (vectors) {
        const std::int64_t blocks = ceil_div(call.rows, cast_rows) * ceil_div(call.columns, cast_columns);
        constexpr int threads = tile_threads(cast_rows, cast_columns, width);
        if (call.rstd != nullptr) {
          cast_transpose_kernel<E, T, cast_rows, cast_columns, true><<<grid(blocks), threads, 0, stream>>>(call);
        } else {
          cast_transpose_kernel<E, T, cast_rows, cast_columns, false><<<grid(blocks), threads, 0, stream>>>(call);
        }
      } else {
        cast_transpose_plain_kernel<E, T><<<grid(ceil_div(call.rows, lanes) * ceil_div(call.columns, lanes)), plain_threads, 0, stream>>>(call);
      }
    });
  });
  check_launch("cast_transpose");
}

void transpose_bytes(cudaStream_t stream, const void* from, std::int64_t rows, std::int64_t columns, void* to) {
  if (rows == 0 || columns == 0) return;
  const auto* source = static_cast<const std::uint8_t*>(from);
  auto* target = static_cast<std::uint8_t*>(to);
  if (rows % 16 == 0 && columns % 16 == 0 && aligned(from) && aligned(to)) {
    transpose_bytes_kernel<byte_rows, byte_columns>
        <<<grid(ceil_div(rows, byte_rows) * ceil_div(columns, byte_columns)), tile_threads(byte_rows, byte_columns, 16), 0, stream>>>(source, rows, columns,
                                                                                                                                      target);
  } else {
    transpose_bytes_plain_kernel<<<grid(ceil_div(rows, lanes) * ceil_div(columns, lanes)), plain_threads, 0, stream>>>(source, rows, columns, target);
  }
  check_launch("transpose_bytes");
}

}  // namespace troupe::cuda
