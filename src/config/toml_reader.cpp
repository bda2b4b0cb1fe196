#include "src/config/toml_reader.hpp"

#include <toml++/toml.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

namespace troupe {
namespace {

std::string position(const std::string& name, const toml::source_region& region) {
  return name + ":" + std::to_string(region.begin.line) + ":" + std::to_string(region.begin.column);
}

/// A plain value, or a list of them, as it is written on a command line; nothing: it is neither.
std::optional<std::string> word_of(const toml::node& node) {
  std::ostringstream value;
  if (const auto* text = node.as_string()) {
    value << (text->get().find(' ') == std::string::npos ? text->get() : '"' + text->get() + '"');
  } else if (node.is_boolean() || node.is_integer() || node.is_floating_point()) {
    value << toml::node_view<const toml::node>(node);
  } else if (const auto* list = node.as_array()) {
    for (const auto& item : *list) {
      const auto word = item.is_array() ? std::nullopt : word_of(item);
      if (!word) return std::nullopt;
      value << (value.view().empty() ? "" : ",") << *word;
    }
  } else {
    return std::nullopt;
  }
  return value.str();
}

/// Adds a table's words; a table in it ([[changes]] set = { optimizer.lr = 1e-4 }) gives the words of its keys. False: there is something else.
bool add_words(const toml::table& table, const std::string& prefix, std::string& words) {
  for (const auto& [key, node] : table) {
    const std::string name = prefix + std::string(key.str());
    if (const auto* below = node.as_table()) {
      if (!add_words(*below, name == "set" ? "" : name + ".", words)) return false;
      continue;
    }
    const auto word = word_of(node);
    if (!word) return false;
    words += (words.empty() ? "" : " ") + name + "=" + *word;
  }
  return true;
}

/// A table of a list of tables ([[faults.rules]]) is its words: "site=lane step=7".
RawValue words_of(const toml::table& table) {
  std::string words;
  if (!add_words(table, "", words)) return {RawValue::Other{"a table with more than plain values"}};
  return {words};
}

RawValue raw_of(const toml::node& node) {
  if (const auto* value = node.as_boolean()) return {value->get()};
  if (const auto* value = node.as_integer()) return {value->get()};
  if (const auto* value = node.as_floating_point()) return {value->get()};
  if (const auto* value = node.as_string()) return {value->get()};
  if (const auto* list = node.as_array()) {
    std::vector<RawValue> items;
    for (const auto& item : *list) items.push_back(item.is_table() ? words_of(*item.as_table()) : raw_of(item));
    return {std::move(items)};
  }
  return {RawValue::Other{node.is_table() ? "a table" : "a date or time"}};
}

/// The parser sorts by name; problems are told in the order of the file.
std::vector<std::pair<const toml::key*, const toml::node*>> in_file_order(const toml::table& table) {
  std::vector<std::pair<const toml::key*, const toml::node*>> entries;
  for (const auto& [key, node] : table) entries.emplace_back(&key, &node);
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    const auto &left = a.first->source().begin, &right = b.first->source().begin;
    return std::pair(left.line, left.column) < std::pair(right.line, right.column);
  });
  return entries;
}

void walk(Schema& schema, const toml::table& table, const std::string& prefix, const std::string& name) {
  for (const auto& [key, entry] : in_file_order(table)) {
    const toml::node& node = *entry;
    const std::string written = prefix + std::string(key->str());
    const std::string where = position(name, key->source());
    const auto* below = node.as_table();
    if (below != nullptr && schema.find(written) == nullptr) {
      if (schema.is_section(written))
        walk(schema, *below, written + ".", name);
      else
        schema.unknown(written, where, "[" + written + "]");
    } else if (below == nullptr && schema.is_section(written) && schema.find(written) == nullptr) {
      schema.problem(where, written + ": is a section; write [" + written + "] and its keys below");
    } else {
      schema.set(written, raw_of(node), KeySource::file, where);
    }
  }
}

}  // namespace

void apply_toml(Schema& schema, const std::string& text, const std::string& name) {
  try {
    const toml::table table = toml::parse(text, name);
    walk(schema, table, "", name);
  } catch (const toml::parse_error& error) {
    schema.problem(position(name, error.source()), std::string(error.description()));
  }
}

}  // namespace troupe
