#pragma once
#include "src/device/verdict.hpp"

namespace troupe {

/// What a step's lanes share, in device memory: compute adds the losses, the shards' verdict sums them over the ranks and decides.
/// The order of the plan keeps them apart: the loss of a step comes after the optimizer of the step before.
struct StepTotals {
  VerdictSums sums;
  double own_loss = 0, own_tokens = 0;  ///< of `sums`, as they were before the ranks added theirs
  Verdict verdict;
};

/// Over the valid targets of the validation set, of all ranks.
struct LossSum {
  double loss = 0, tokens = 0;
};

}  // namespace troupe
