#pragma once
#include <cuda_runtime_api.h>

#include "src/device/verdict.hpp"

namespace troupe::cuda {

/// decide_verdict (src/device/verdict.hpp) on the device: one thread, fp64. `halt` may be null; it is host memory that the device can read.
struct Decide {
  const VerdictSums* sums;
  double world, expected_tag, nominal_tokens, max_norm;
  const HaltWord* halt;
  Verdict* verdict;
};
void decide(cudaStream_t stream, const Decide& call);

}  // namespace troupe::cuda
