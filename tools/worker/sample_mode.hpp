#pragma once
#include "tools/commands/commands.hpp"

namespace troupe {

/// Continues a prompt with the weights of a checkpoint, or with the initial ones where the run has none, and prints prompt and text to
/// standard output. Returns the exit code.
[[nodiscard]] int run_sample(const SampleRequest& request);

}  // namespace troupe
