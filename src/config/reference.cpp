#include "src/config/job_config.hpp"

namespace troupe {
namespace {

std::string escaped(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.replace(at, 1, "\\|");
  return text;
}

std::string spellings(const Key& key) {
  std::string text;
  for (const auto& alias : key.aliases) text += ", also `" + alias + "`";
  return text;
}

std::string row(const Key& key, const std::string& section) {
  std::string doc = key.doc;
  if (const auto limits = key.limits(); !limits.empty()) doc += " (" + limits + ")";
  for (const auto& alias : key.aliases) doc += "; also `" + alias + "`";
  if (key.state == KeyState::not_built || !key.built_values().empty()) {
    doc += ". **Not built yet**: " + key.why;
    if (const auto built = key.built_values(); !built.empty()) doc += "; built: " + built;
  }
  return "| `" + key.name.substr(section.size() + 1) + "` | " + key.type() + " | " + (key.initial.empty() ? "unset" : "`" + escaped(key.initial) + "`") +
         " | " + std::string(key.effective() ? name_of(key.key_class) : "-") + " | " + escaped(doc) + " |\n";
}

}  // namespace

std::string JobConfig::reference_markdown() {
  JobConfig config;
  Schema schema;
  config.describe_to(schema);
  std::string text =
      "# Configuration\n\n"
      "Made by `troupe config --doc` from the declarations in `src/*/settings.hpp`; a test compares the two.\n\n"
      "A run reads defaults, then the TOML file, then the command line (`--section.key value`, `--section.key=value`, a boolean as `--section.key`,\n"
      "`--section.no_key` or `--section.key=false`; `-` and `_` are the same in names; lists are comma-separated; `none` unsets an optional key).\n"
      "Unknown names, wrong types and values out of range are refused, all at once, with file, line, column and the nearest known name.\n\n"
      "Class: **live** keys may change between two steps, **epoch** keys begin a new epoch, **frozen** keys belong to the run.\n\n"
      "All keys of torchtitan's TOML files are known, in the spellings of June 2025 and of v0.2.2. What is *not built yet* is shown by `troupe config`\n"
      "and refused by `troupe train`, by name and place, when it is asked for; what has nothing to act on here is accepted, and one line says so.\n";
  for (const auto& [section, doc] : schema.sections()) {
    std::string keys, later, ignored;
    for (const auto& key : schema.keys()) {
      if (key.name.substr(0, key.name.rfind('.')) != section) continue;
      if (key.effective())
        keys += row(key, section);
      else if (key.state == KeyState::not_built)
        later += row(key, section);
      else
        ignored += "- `" + key.name.substr(section.size() + 1) + "`" + spellings(key) + ": " + key.doc + "\n";
    }
    text += "\n## [" + section + "]\n\n";
    if (!doc.empty()) text += doc + "\n\n";
    keys += later;
    if (!keys.empty()) text += "| key | type | default | class | meaning |\n| --- | --- | --- | --- | --- |\n" + keys;
    if (!ignored.empty()) text += std::string(keys.empty() ? "" : "\n") + "Accepted without effect:\n\n" + ignored;
  }
  return text;
}

}  // namespace troupe
