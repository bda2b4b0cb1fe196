#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "src/data/record.hpp"

namespace troupe {

/// What is wrong with a line, and at which of its bytes (from 0).
struct JsonLineProblem {
  std::string text;
  std::uint64_t byte = 0;
};

/// The text of a record in a line of JSON: the string under `rules.text_key` of an object, whose other keys are checked for syntax and left; or its turns
/// (pack_turns). Sets `problem.text` on failure (no object, a key that is missing, of another type or twice, bad syntax, a conversation without an answer)
/// and returns an empty string.
[[nodiscard]] std::string text_of_json_line(std::string_view line, JsonLineProblem& problem, const RecordRules& rules = {});

}  // namespace troupe
