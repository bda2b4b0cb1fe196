#include <cctype>

#include "src/base/schema.hpp"

namespace troupe {
namespace {

constexpr const char* where_typed = "command line";

bool is_option(std::string_view argument) {
  return argument.size() > 2 && argument.starts_with("--") && std::isalpha(static_cast<unsigned char>(argument[2])) != 0;
}

/// "checkpoint.no_enable" → "checkpoint.enable" where that is a boolean; empty otherwise.
std::string negated(Schema& schema, std::string_view name) {
  const auto dot = name.rfind('.');
  if (dot == std::string_view::npos) return {};
  const auto leaf = name.substr(dot + 1);
  if (!leaf.starts_with("no_") && !leaf.starts_with("no-")) return {};
  std::string positive = std::string(name.substr(0, dot + 1)) + std::string(leaf.substr(3));
  const Key* key = schema.find(positive);
  return key != nullptr && key->boolean() ? positive : std::string{};
}

bool truth_value(std::string_view text) { return text == "true" || text == "false" || text == "True" || text == "False"; }

}  // namespace

void apply_command_line(Schema& schema, std::span<const std::string> arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (!is_option(argument)) {
      schema.problem(where_typed, "unexpected '" + std::string(argument) + "'; settings are written --section.key value or --section.key=value");
      continue;
    }
    const auto equals = argument.find('=');
    const std::string_view name = argument.substr(2, equals == std::string_view::npos ? equals : equals - 2);
    Key* key = schema.find(name);
    if (equals != std::string_view::npos) {
      schema.set_text(name, argument.substr(equals + 1), KeySource::command_line, where_typed);
    } else if (key != nullptr && key->boolean()) {
      const bool given = i + 1 < arguments.size() && truth_value(arguments[i + 1]);
      schema.set_text(name, given ? std::string_view(arguments[++i]) : "true", KeySource::command_line, where_typed);
    } else if (const auto positive = key == nullptr ? negated(schema, name) : std::string{}; !positive.empty()) {
      schema.set_text(positive, "false", KeySource::command_line, where_typed);
    } else if (i + 1 < arguments.size() && !is_option(arguments[i + 1])) {
      schema.set_text(name, arguments[++i], KeySource::command_line, where_typed);
    } else if (key == nullptr) {
      schema.unknown(name, where_typed, name);
    } else if (key->typed()) {
      schema.problem(where_typed, std::string(name) + ": a value is missing; write --" + std::string(name) + " VALUE (" + key->type() + ")");
    } else {
      schema.set_text(name, "true", KeySource::command_line, where_typed);
    }
  }
}

}  // namespace troupe
