#pragma once
#include <string>
#include <string_view>

#include "src/base/result.hpp"

namespace troupe {

/// Text that a model made, fit for a terminal: what is no valid UTF-8, and control characters other than tab and line feed (they could
/// move the cursor or rename the window), become U+FFFD, one for each byte sequence that cannot be the beginning of a character. Pure.
[[nodiscard]] std::string terminal_text(std::string_view bytes);

/// Prints it and a line feed after what was printed before. Error: not all of that could be written, and why.
[[nodiscard]] Result<void> print_last(const std::string& text);

}  // namespace troupe
