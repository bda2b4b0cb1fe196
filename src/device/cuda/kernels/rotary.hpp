#pragma once
#include "src/device/cuda/kernels/element.hpp"

namespace troupe::cuda {

/// Rotates the pairs (2i, 2i+1) of the first `heads` heads of each token in place (K3): a' = a cos − b sin, b' = a sin + b cos.
/// Tokens may lie in a packed qkv buffer: `stride` elements between tokens. position = token mod positions. 2 × 2 bytes an element.
struct Rotary {
  void* x;  ///< token t, head h, element e at x[t · stride + h · head_size + e]
  Element type;
  std::int64_t tokens, heads, head_size, stride;
  const float* table;  ///< [positions, head_size / 2, 2]: cosine, sine
  std::int64_t positions;
  bool inverse;           ///< the backward: rotates by minus the angle
  float* amax = nullptr;  ///< raised to max |x as stored|; the caller zeroes it before
};
void rotary(cudaStream_t stream, const Rotary& call);

/// The backward of q, k and v in one pass (K7): rotates dq and dk back and packs [dq | dk | dv] of each token beside each other,
/// as the gradient of one fused qkv product. 2 × 2 bytes an element.
struct RotaryPack {
  const void* dq;  ///< [tokens, heads, head_size]
  const void* dk;  ///< [tokens, kv_heads, head_size]
  const void* dv;
  void* packed;  ///< [tokens, (heads + 2 kv_heads) · head_size]
  Element type;
  std::int64_t tokens, heads, kv_heads, head_size;
  const float* table;
  std::int64_t positions;
  float* amax = nullptr;  ///< raised to max |packed as stored|; the caller zeroes it before
};
void rotary_pack(cudaStream_t stream, const RotaryPack& call);

}  // namespace troupe::cuda
