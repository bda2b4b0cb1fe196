#pragma once
#include <arrow/array.h>

#include <cstdint>
#include <string>

namespace troupe {

/// Appends value `i` of a column as JSON: texts, whole numbers, booleans, lists and structs of them; what is null or of another type is null.
void append_json(std::string& out, const arrow::Array& column, std::int64_t i);
void append_json_string(std::string& out, std::string_view text);

}  // namespace troupe
