#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.hpp"
#include "src/tokenizer/code_points.hpp"
#include "src/tokenizer/split_pattern.hpp"

namespace troupe {

/// Part of a pattern: text for the engine as it stands, or one code point out of a set.
struct PatternPart {
  std::string text;
  std::size_t set = no_set;
  static constexpr std::size_t no_set = ~std::size_t{0};
};

struct ReadPattern {
  std::vector<PatternPart> parts;
  std::vector<CodePointSet> sets;
};

/// Takes a regular expression apart into sets of code points and what holds them together. Errors name what is not understood, and where.
[[nodiscard]] Result<ReadPattern> read_pattern(std::string_view pattern, PatternSyntax syntax);

}  // namespace troupe
