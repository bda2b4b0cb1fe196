#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "src/base/result.hpp"

namespace troupe {

/// What is wrong with a line, and at which of its bytes (from 0).
struct JsonLineProblem {
  std::string text;
  std::uint64_t byte = 0;
};

/// The string under the key "text" of a JSON object; other keys are checked for syntax and left. Sets `problem.text` on failure
/// (no object, no "text", not a string, twice, bad syntax) and returns an empty string.
[[nodiscard]] std::string text_of_json_line(std::string_view line, JsonLineProblem& problem);

}  // namespace troupe
