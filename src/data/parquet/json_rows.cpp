#include "src/data/parquet/json_rows.hpp"

#include <arrow/array/array_dict.h>
#include <arrow/array/array_nested.h>
#include <arrow/array/array_primitive.h>
#include <arrow/type.h>
#include <arrow/util/checked_cast.h>

#include <string_view>

namespace troupe {
namespace {

using arrow::internal::checked_cast;

template <class List>
void append_list(std::string& out, const arrow::Array& column, std::int64_t i) {
  const auto& list = checked_cast<const List&>(column);
  const std::int64_t begin = list.value_offset(i), count = list.value_length(i);
  out += '[';
  for (std::int64_t k = 0; k < count; ++k) {
    if (k > 0) out += ',';
    append_json(out, *list.values(), begin + k);
  }
  out += ']';
}

void append_struct(std::string& out, const arrow::StructArray& column, std::int64_t i) {
  out += '{';
  for (int f = 0; f < column.num_fields(); ++f) {
    if (f > 0) out += ',';
    append_json_string(out, column.struct_type()->field(f)->name());
    out += ':';
    append_json(out, *column.field(f), i);
  }
  out += '}';
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
  static constexpr std::string_view digits = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') out += '\\';
    if (byte >= 0x20)
      out += c;
    else
      (out += "\\u00") += {digits[byte >> 4U], digits[byte & 15U]};
  }
  out += '"';
}

void append_json(std::string& out, const arrow::Array& column, std::int64_t i) {
  if (column.IsNull(i)) {
    out += "null";
    return;
  }
  switch (column.type_id()) {
    case arrow::Type::STRING: return append_json_string(out, checked_cast<const arrow::StringArray&>(column).GetView(i));
    case arrow::Type::LARGE_STRING: return append_json_string(out, checked_cast<const arrow::LargeStringArray&>(column).GetView(i));
    case arrow::Type::STRING_VIEW: return append_json_string(out, checked_cast<const arrow::StringViewArray&>(column).GetView(i));
    case arrow::Type::DICTIONARY: {
      const auto& coded = checked_cast<const arrow::DictionaryArray&>(column);
      return append_json(out, *coded.dictionary(), coded.GetValueIndex(i));
    }
    case arrow::Type::LIST: return append_list<arrow::ListArray>(out, column, i);
    case arrow::Type::LARGE_LIST: return append_list<arrow::LargeListArray>(out, column, i);
    case arrow::Type::STRUCT: return append_struct(out, checked_cast<const arrow::StructArray&>(column), i);
    case arrow::Type::BOOL: out += checked_cast<const arrow::BooleanArray&>(column).Value(i) ? "true" : "false"; return;
    case arrow::Type::INT32: out += std::to_string(checked_cast<const arrow::Int32Array&>(column).Value(i)); return;
    case arrow::Type::INT64: out += std::to_string(checked_cast<const arrow::Int64Array&>(column).Value(i)); return;
    default: out += "null";
  }
}

}  // namespace troupe
