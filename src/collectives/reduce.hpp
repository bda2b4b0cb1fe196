#pragma once
#include <cstddef>
#include <span>

#include "src/collectives/communicator.hpp"

namespace troupe {

/// out[i] (+)= ((s0[i] + s1[i]) + s2[i]) + …, in the order of `sources` for every i, whatever count and alignment: the same bits
/// everywhere. `out` may be one of the sources. With accumulate the sum is formed first and then added to out. Sources not empty.
void sum_in_order(std::span<const float* const> sources, float* out, std::size_t count, bool accumulate) noexcept;
void sum_in_order(std::span<const double* const> sources, double* out, std::size_t count) noexcept;

/// out[i] = the largest; a NaN in any source wins. `out` may be one of the sources.
void max_in_order(std::span<const float* const> sources, float* out, std::size_t count) noexcept;
void max_in_order(std::span<const double* const> sources, double* out, std::size_t count) noexcept;

}  // namespace troupe
