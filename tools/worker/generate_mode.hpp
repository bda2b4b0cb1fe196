#pragma once
#include "tools/commands/commands.hpp"

namespace troupe {

/// Continues a prompt with the weights of a sealed checkpoint or of a folder of Hugging Face, and prints the text, or the token ids, to
/// standard output as they come. Returns the exit code.
[[nodiscard]] int run_generate(const GenerateRequest& request);

}  // namespace troupe
