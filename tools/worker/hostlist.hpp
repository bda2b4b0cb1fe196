#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.hpp"

namespace troupe {

/// The hosts of a Slurm node list in its order: "linux[1,3-5]b,alpha" → linux1b linux3b linux4b linux5b alpha. Brackets may stand
/// anywhere and more than once in a name; "001-003" keeps its width. Pure. An empty or malformed list is an error that shows where.
[[nodiscard]] Result<std::vector<std::string>> expand_hostlist(std::string_view list);

}  // namespace troupe
