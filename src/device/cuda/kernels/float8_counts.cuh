#pragma once
// What fp8 casts met, counted as they go. Device code only.
#include "src/device/cuda/kernels/reduce.cuh"
#include "src/device/verdict.hpp"

namespace troupe::cuda {

/// Largest magnitude that still rounds to the format's largest value.
template <Element E>
constexpr float rounds_to_largest = E == Element::e4m3 ? 464.0F : 61439.996F;

/// Adds to `beyond` whatever would round past the largest value, to `strange` what of that is not finite.
template <Element E>
__device__ void look_at(float scaled, std::uint32_t& beyond, std::uint32_t& strange) {
  beyond += magnitude(scaled) > __float_as_uint(rounds_to_largest<E>) ? 1U : 0U;
  strange += magnitude(scaled) > 0x7f7fffffU ? 1U : 0U;
}

/// Adds a whole warp's finds to *counts: whole numbers, so the order does not matter. All lanes call it; where none found any it costs a vote.
__device__ inline void tell(std::uint32_t beyond, std::uint32_t strange, Float8Counts* counts) {
  if (__any_sync(0xffffffffU, beyond != 0) == 0) return;
  beyond = over_warp<Sum>(beyond);
  strange = over_warp<Sum>(strange);
  if (threadIdx.x % lanes != 0) return;
  if (beyond > strange) atomicAdd(&counts->saturated, static_cast<double>(beyond - strange));
  if (strange > 0) atomicAdd(&counts->non_finite, static_cast<double>(strange));
}

}  // namespace troupe::cuda
