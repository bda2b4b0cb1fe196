#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "src/model/programs.hpp"

namespace troupe {

/// What a step's lanes share, in device memory: compute adds the losses, the shards' verdict sums them over the ranks and decides.
/// The order of the plan keeps them apart: the loss of a step comes after the optimizer of the step before.
struct StepTotals {
  VerdictSums sums;
  double own_loss = 0, own_tokens = 0;  ///< of `sums`, as they were before the ranks added theirs
  Verdict verdict;
};

/// Of which source of a blend each row of a step is, on this rank.
struct RowSources {
  std::uint32_t count = 0;                    ///< of sources; below 2: nothing is counted apart
  std::uint32_t micro_batches = 0, rows = 0;  ///< of a step, of a micro-batch
  /// By row of the micro-batch; nothing: the row is padding. Called on the thread that reads the step's numbers.
  std::function<std::vector<std::optional<std::uint32_t>>(Step, Micro)> of = {};
  [[nodiscard]] std::size_t marks() const noexcept { return count > 1 ? std::size_t{micro_batches} * rows : 0; }
};

}  // namespace troupe
