#pragma once
#include <string>

#include "src/base/schema.hpp"

namespace troupe {

/// Sets every key that the TOML text holds; problems are recorded as "name:line:column: …". Syntax errors and duplicate keys are
/// found by the parser, which stops at the first.
void apply_toml(Schema& schema, const std::string& text, const std::string& name);

}  // namespace troupe
