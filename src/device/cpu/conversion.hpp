#pragma once
#include <cstdint>

#include "src/device/cpu/bfloat16.hpp"

namespace troupe::cpu {

/// to[i] = from[i], rounded to nearest even.
void convert(const BFloat16* from, float* to, std::int64_t count);
void convert(const BFloat16* from, double* to, std::int64_t count);
void convert(const float* from, BFloat16* to, std::int64_t count);
void convert(const float* from, double* to, std::int64_t count);
void convert(const double* from, BFloat16* to, std::int64_t count);
void convert(const double* from, float* to, std::int64_t count);

/// out (+)= product, rounded once.
void store_product(const float* product, BFloat16* out, std::int64_t count, bool accumulate);

}  // namespace troupe::cpu
