#include "src/device/cuda/kernels/dispatch.cuh"
#include "src/device/cuda/kernels/reduce.cuh"
#include "src/device/cuda/kernels/rotary.hpp"

namespace troupe::cuda {
namespace {

constexpr int plain_threads = 128;
constexpr int forward_threads = 128, forward_at_once = 5;  // heads in flight a thread
constexpr int pack_threads = 128, pack_at_once = 6;

struct Angles {
  float cosine[width / 2], sine[width / 2];
};

__device__ Angles angles_of(const float* table, std::int64_t position, std::int64_t pairs, int first_pair, float sign) {
  float values[width];
  unpack(load8(table + (position * pairs + first_pair) * 2), values);
  Angles result;
#pragma unroll
  for (int i = 0; i < width / 2; ++i) result.cosine[i] = values[2 * i], result.sine[i] = sign * values[2 * i + 1];
  return result;
}

template <class T>
__device__ Packed<T> rotated(const Packed<T>& value, const Angles& angles) {
  float v[width];
  unpack(value, v);
#pragma unroll
  for (int i = 0; i < width / 2; ++i) {
    const float a = v[2 * i], b = v[2 * i + 1];
    v[2 * i] = a * angles.cosine[i] - b * angles.sine[i];
    v[2 * i + 1] = a * angles.sine[i] + b * angles.cosine[i];
  }
  return pack<T>(v);
}

/// A block a token. A thread keeps its place within the head, so it reads its angles once.
template <class T, int threads, int at_once>
__global__ void __launch_bounds__(threads) rotary_kernel(const Rotary call) {
  const int a_head = static_cast<int>(call.head_size) / width, groups = threads / a_head;
  const int place = static_cast<int>(threadIdx.x) % a_head, group = static_cast<int>(threadIdx.x) / a_head;
  std::uint32_t found = 0;
  if (group < groups) {
    const std::int64_t token = blockIdx.x;
    auto* x = static_cast<T*>(call.x) + token * call.stride + place * width;
    const Angles angles = angles_of(call.table, token % call.positions, call.head_size / 2, place * (width / 2), call.inverse ? -1.0F : 1.0F);
    for (std::int64_t head = group; head < call.heads; head += groups * at_once) {
      Packed<T> loaded[at_once];
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        if (head + i * groups < call.heads) loaded[i] = load8(x + (head + i * groups) * call.head_size);
      }
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        if (head + i * groups >= call.heads) continue;
        const Packed<T> value = rotated(loaded[i], angles);
        store8(x + (head + i * groups) * call.head_size, value);
        found = max(found, largest_magnitude(value));
      }
    }
  }
  if (call.amax != nullptr) raise_amax(call.amax, found);
}

template <class T>
__global__ void rotary_plain_kernel(const Rotary call) {
  const std::int64_t pairs = call.head_size / 2, i = blockIdx.x * std::int64_t(blockDim.x) + threadIdx.x;
  std::uint32_t found = 0;
  if (i < call.tokens * call.heads * pairs) {
    const std::int64_t pair = i % pairs, head = i / pairs % call.heads, token = i / pairs / call.heads;
    auto* x = static_cast<T*>(call.x) + token * call.stride + head * call.head_size + 2 * pair;
    const float* angle = call.table + (token % call.positions * pairs + pair) * 2;
    const float cosine = angle[0], sine = call.inverse ? -angle[1] : angle[1], a = widen(x[0]), b = widen(x[1]);
    x[0] = narrow<T>(a * cosine - b * sine);
    x[1] = narrow<T>(a * sine + b * cosine);
    found = max(magnitude(widen(x[0])), magnitude(widen(x[1])));
  }
  if (call.amax != nullptr) raise_amax(call.amax, found);
}

/// Where head `h` of [dq | dk | dv] comes from.
template <class T>
__device__ const T* source(const RotaryPack& call, std::int64_t token, std::int64_t head) {
  if (head < call.heads) return static_cast<const T*>(call.dq) + (token * call.heads + head) * call.head_size;
  const std::int64_t k = head - call.heads, v = k - call.kv_heads;
  if (v < 0) return static_cast<const T*>(call.dk) + (token * call.kv_heads + k) * call.head_size;
  return static_cast<const T*>(call.dv) + (token * call.kv_heads + v) * call.head_size;
}

template <class T, int threads, int at_once>
__global__ void __launch_bounds__(threads) rotary_pack_kernel(const RotaryPack call) {
  const int a_head = static_cast<int>(call.head_size) / width, groups = threads / a_head;
  const int place = static_cast<int>(threadIdx.x) % a_head, group = static_cast<int>(threadIdx.x) / a_head;
  const std::int64_t token = blockIdx.x, heads = call.heads + 2 * call.kv_heads, turning = call.heads + call.kv_heads;
  std::uint32_t found = 0;
  if (group < groups) {
    const Angles angles = angles_of(call.table, token % call.positions, call.head_size / 2, place * (width / 2), -1.0F);
    auto* to = static_cast<T*>(call.packed) + token * heads * call.head_size + place * width;
    for (std::int64_t head = group; head < heads; head += groups * at_once) {
      Packed<T> loaded[at_once];
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        if (head + i * groups < heads) loaded[i] = load8(source<T>(call, token, head + i * groups) + place * width);
      }
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        const std::int64_t h = head + i * groups;
        if (h >= heads) continue;
        const Packed<T> value = h < turning ? rotated(loaded[i], angles) : loaded[i];
        store8(to + h * call.head_size, value);
        found = max(found, largest_magnitude(value));
      }
    }
  }
  if (call.amax != nullptr) raise_amax(call.amax, found);
}

template <class T>
__global__ void rotary_pack_plain_kernel(const RotaryPack call) {
  const std::int64_t pairs = call.head_size / 2, heads = call.heads + 2 * call.kv_heads;
  const std::int64_t i = blockIdx.x * std::int64_t(blockDim.x) + threadIdx.x;
  std::uint32_t found = 0;
  if (i < call.tokens * heads * pairs) {
    const std::int64_t pair = i % pairs, head = i / pairs % heads, token = i / pairs / heads;
    const T* x = source<T>(call, token, head) + 2 * pair;
    T* to = static_cast<T*>(call.packed) + (token * heads + head) * call.head_size + 2 * pair;
    const float* angle = call.table + (token % call.positions * pairs + pair) * 2;
    const bool turns = head < call.heads + call.kv_heads;
    const float cosine = turns ? angle[0] : 1.0F, sine = turns ? -angle[1] : 0.0F, a = widen(x[0]), b = widen(x[1]);
    to[0] = turns ? narrow<T>(a * cosine - b * sine) : x[0];
    to[1] = turns ? narrow<T>(a * sine + b * cosine) : x[1];
    found = max(magnitude(widen(to[0])), magnitude(widen(to[1])));
  }
  if (call.amax != nullptr) raise_amax(call.amax, found);
}

bool vectors(std::int64_t head_size, std::int64_t stride) { return head_size % width == 0 && head_size <= forward_threads * width && stride % width == 0; }

}  // namespace

void rotary(cudaStream_t stream, const Rotary& call) {
  if (call.tokens == 0 || call.heads == 0) return;
  if (call.head_size % 2 != 0 || call.positions <= 0) refuse("rotary", "an even head size and a table of at least one position");
  with_floating("rotary", call.type, [&](auto tag) {
    using T = decltype(tag);
    if (vectors(call.head_size, call.stride) && aligned(call.x) && aligned(call.table)) {
      rotary_kernel<T, forward_threads, forward_at_once><<<grid(call.tokens), forward_threads, 0, stream>>>(call);
    } else {
      rotary_plain_kernel<T><<<grid(ceil_div(call.tokens * call.heads * (call.head_size / 2), plain_threads)), plain_threads, 0, stream>>>(call);
    }
  });
  check_launch("rotary");
}

void rotary_pack(cudaStream_t stream, const RotaryPack& call) {
  if (call.tokens == 0) return;
  if (call.head_size % 2 != 0 || call.positions <= 0) refuse("rotary_pack", "an even head size and a table of at least one position");
  with_floating("rotary_pack", call.type, [&](auto tag) {
    using T = decltype(tag);
    const bool fast = vectors(call.head_size, 0) && aligned(call.dq) && aligned(call.dk) && aligned(call.dv) && aligned(call.packed) && aligned(call.table);
    if (fast) {
      rotary_pack_kernel<T, pack_threads, pack_at_once><<<grid(call.tokens), pack_threads, 0, stream>>>(call);
    } else {
      const std::int64_t pairs = call.tokens * (call.heads + 2 * call.kv_heads) * (call.head_size / 2);
      rotary_pack_plain_kernel<T><<<grid(ceil_div(pairs, plain_threads)), plain_threads, 0, stream>>>(call);
    }
  });
  check_launch("rotary_pack");
}

}  // namespace troupe::cuda
