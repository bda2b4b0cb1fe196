#pragma once
#include <memory>

#include "src/device/kernels.hpp"

namespace troupe {

/// Attention of new tokens to the keys and values kept of those before: what continuing a text token by token needs. Called as Kernels are.
class CachedAttention {
 public:
  virtual ~CachedAttention() = default;
  /// out = softmax(q kᵀ scale) v, where query t of T sees the first S − T + t + 1 keys. q, out [T,H,d]; k, v [S,KV,d], H a multiple of KV,
  /// S at least T; all of one floating type.
  virtual void attention_cached(Stream&, TensorView q, TensorView k, TensorView v, double scale, TensorView out) = 0;
};

/// For memory that the host reads. Of the CPU's library.
[[nodiscard]] std::unique_ptr<CachedAttention> make_cpu_cached_attention();

}  // namespace troupe
