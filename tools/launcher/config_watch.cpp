#include "tools/launcher/config_watch.hpp"

#include <fmt/format.h>

#include <utility>

#include "src/config/load_extension.hpp"
#include "tools/launcher/live_keys.hpp"

namespace troupe {
namespace {

std::string text_of(const std::string& value) { return value; }
std::string text_of(bool value) { return value ? "true" : "false"; }
std::string text_of(std::int64_t value) { return std::to_string(value); }
std::string text_of(double value) { return fmt::format("{}", value); }
template <class T>
std::string text_of(const std::optional<T>& value) {
  return value ? text_of(*value) : "none";
}
template <class T>
std::string text_of(const std::vector<T>& values) {
  std::string text;
  for (const T& value : values) text += (text.empty() ? "" : ",") + text_of(value);
  return text;
}

std::string value_of(const Key& key) {
  return std::visit(
      [](const auto& target) -> std::string {
        if constexpr (std::is_same_v<std::decay_t<decltype(target)>, std::monostate>)
          return {};
        else
          return text_of(*target);
      },
      key.target);
}

}  // namespace

std::vector<std::string> edits_between(const JobConfig& before, const JobConfig& now) {
  JobConfig old_copy = before, copy = now;
  Schema old_schema, schema;
  old_copy.describe_to(old_schema);
  copy.describe_to(schema);
  std::vector<std::string> edits;
  for (std::size_t i = 0; i < schema.keys().size(); ++i) {
    const Key &was = old_schema.keys()[i], &key = schema.keys()[i];
    if (key.typed() && was.toml() != key.toml()) edits.push_back(key.name + "=" + value_of(key));
  }
  return edits;
}

ConfigWatch::ConfigWatch(std::filesystem::path file, std::vector<std::string> overrides, const JobConfig& config)
    : file_(std::move(file)), overrides_(std::move(overrides)), before_(config), stamp_(stamp()), touched_(stamp_) {}

ConfigWatch::Stamp ConfigWatch::stamp() const {
  struct stat found {};
  if (::stat(file_.c_str(), &found) != 0) return {};
  return {found.st_mtim.tv_sec, found.st_mtim.tv_nsec, found.st_size, found.st_ino};
}

std::optional<Result<std::vector<std::string>>> ConfigWatch::look(Time now) {
  const Stamp found = stamp();
  if (std::exchange(touched_, found) != found) touched_at_ = now;
  if (found == stamp_ || found.size <= 0 || now - touched_at_ < settles) return std::nullopt;  // it may be gone, or empty, for a moment
  auto config = with_extension(JobConfig::load(file_, overrides_));
  if (stamp() != found) return std::nullopt;  // written while it was read
  stamp_ = found;
  if (!config) return Error{config.error().message};
  auto edits = edits_between(before_, *config);
  if (edits.empty()) return std::nullopt;
  std::string problems;
  for (const std::string& edit : edits) {
    const std::string key = edit.substr(0, edit.find('='));
    const auto kind = live_kind(key);
    if (kind) continue;
    const auto origin = config->origins.find(key);
    problems +=
        fmt::format("{}{}: {}", problems.empty() ? "" : "\n", origin == config->origins.end() ? file_.string() : origin->second.where, kind.error().message);
  }
  if (!problems.empty()) return Error{problems};  // what it said before stays what is compared with
  before_ = std::move(*config);
  return edits;
}

}  // namespace troupe
