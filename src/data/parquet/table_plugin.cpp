#include "src/data/table_plugin.hpp"

#include <arrow/util/config.h>

#include <exception>

#include "src/data/parquet/json_rows.hpp"
#include "src/data/parquet/table_rows.hpp"

namespace troupe {
namespace {

std::string words_of(const arrow::Status& status) {
  if (status.IsKeyError() || status.message().starts_with("is ")) return status.message();
  return "cannot be read, is it damaged or cut off? " + status.message();
}

/// A text or a list of messages; anything else would be null in every row.
std::string wrong_type(const std::string& name, const arrow::DataType& type) {
  const arrow::DataType& values = type.id() == arrow::Type::DICTIONARY ? *static_cast<const arrow::DictionaryType&>(type).value_type() : type;
  switch (values.id()) {
    case arrow::Type::STRING:
    case arrow::Type::LARGE_STRING:
    case arrow::Type::STRING_VIEW:
    case arrow::Type::LIST:
    case arrow::Type::LARGE_LIST:
    case arrow::Type::NA: return {};
    default: return "column \"" + name + "\" is of type " + type.ToString() + ", expected strings";
  }
}

std::string read_rows(const std::string& path, const std::vector<std::string>& columns, const TablePlugin::RowSink& sink) try {
  const auto rows = open_table(path, columns);
  if (!rows.ok()) return words_of(rows.status());
  std::string line;
  std::uint64_t row = 0;
  for (;;) {
    const auto batch = (*rows)->next();
    if (!batch.ok()) return words_of(batch.status()) + " (after " + std::to_string(row) + " rows)";
    if (*batch == nullptr) return {};
    std::vector<std::shared_ptr<arrow::Array>> values;
    for (const std::string& name : columns) {
      values.push_back((*batch)->GetColumnByName(name));
      if (values.back() == nullptr) return "column \"" + name + "\" holds no values";
      if (std::string wrong = wrong_type(name, *values.back()->type()); !wrong.empty()) return wrong;
    }
    for (std::int64_t i = 0; i < (*batch)->num_rows(); ++i, ++row) {
      line = "{\"__row\":" + std::to_string(row);
      for (std::size_t c = 0; c < columns.size(); ++c) {
        line += ',';
        append_json_string(line, columns[c]);
        line += ':';
        append_json(line, *values[c], i);
      }
      line += '}';
      if (std::string wrong = sink(line, (*rows)->done()); !wrong.empty()) return wrong;
    }
  }
} catch (const std::exception& problem) {
  return std::string("cannot be read, is it damaged or cut off? ") + problem.what();
}

const TablePlugin plugin{TablePlugin::current_interface, ARROW_VERSION_STRING, read_rows};

}  // namespace
}  // namespace troupe

extern "C" __attribute__((visibility("default"))) const troupe::TablePlugin* troupe_table_plugin() { return &troupe::plugin; }
