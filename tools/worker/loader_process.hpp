#pragma once
#include "tools/worker/environment.hpp"

namespace troupe {

/// Loads data for other processes' ranks until they are gone: for each SlotHome that a rank sends, the batch of that step and
/// micro-batch goes into the rank's slot. `place.rank`: number of this loader process. Returns the exit code; throws what the data says.
[[nodiscard]] int run_loader(const WorkerPlace& place);

}  // namespace troupe
