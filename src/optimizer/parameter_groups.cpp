#include "src/optimizer/parameter_groups.hpp"

#include <algorithm>
#include <charconv>
#include <regex>
#include <sstream>
#include <utility>

namespace troupe {
namespace {

struct Field {
  std::string_view name;
  std::optional<double> ParameterGroup::*member;
  double low, high;  ///< [low, high)
};
constexpr double unlimited = 1e300;
constexpr Field fields[] = {{"lr_factor", &ParameterGroup::lr_factor, 0, unlimited},
                            {"weight_decay", &ParameterGroup::weight_decay, 0, unlimited},
                            {"beta1", &ParameterGroup::beta1, 0, 1},
                            {"beta2", &ParameterGroup::beta2, 0, 1},
                            {"eps", &ParameterGroup::eps, 0, unlimited}};

bool matches(std::string_view name, const std::string& pattern) { return std::regex_search(name.begin(), name.end(), std::regex(pattern)); }

Result<void> set(ParameterGroup& group, std::string_view key, std::string_view text) {
  if (key == "match") {
    group.pattern = text;
    try {
      (void)std::regex(group.pattern);
    } catch (const std::regex_error& problem) {
      return Error{"\"" + group.pattern + "\" is no regular expression: " + problem.what()};
    }
    return {};
  }
  const auto* const field = std::find_if(std::begin(fields), std::end(fields), [&](const Field& f) { return f.name == key; });
  if (field == std::end(fields)) return Error{"unknown word \"" + std::string(key) + "\"; known are match, lr_factor, weight_decay, beta1, beta2, eps"};
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return Error{std::string(key) + "=" + std::string(text) + " is no number"};
  if (!(value >= field->low && value < field->high)) return Error{std::string(key) + "=" + std::string(text) + " is out of range"};
  group.*field->member = value;
  return {};
}

Result<ParameterGroup> read(const std::string& line) {
  ParameterGroup group;
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos) return Error{"\"" + word + "\" is no word=value"};
    if (auto done = set(group, std::string_view(word).substr(0, equals), std::string_view(word).substr(equals + 1)); !done) return done.error();
  }
  if (group.pattern.empty()) return Error{"match=REGEX is missing"};
  return group;
}

}  // namespace

Result<ParameterGroups> ParameterGroups::of(const OptimizerSettings& settings) {
  ParameterGroups groups;
  groups.decay_vectors_ = settings.decay_norms_and_biases;
  for (const std::string& line : settings.param_groups) {
    auto group = read(line);
    if (!group) return Error{"\"" + line + "\": " + group.error().message};
    groups.groups_.push_back(std::move(*group));
  }
  return groups;
}

const ParameterGroup* ParameterGroups::find(std::string_view name) const {
  const auto found = std::find_if(groups_.begin(), groups_.end(), [&](const ParameterGroup& group) { return matches(name, group.pattern); });
  return found == groups_.end() ? nullptr : &*found;
}

AdamWSettings ParameterGroups::settings_of(const AdamWSettings& base, std::string_view name, bool vector) const {
  AdamWSettings settings = base;
  if (vector && !decay_vectors_) settings.weight_decay = 0;
  if (const ParameterGroup* group = find(name)) {
    settings.lr_factor = group->lr_factor.value_or(settings.lr_factor);
    settings.weight_decay = group->weight_decay.value_or(settings.weight_decay);
    settings.beta1 = group->beta1.value_or(settings.beta1);
    settings.beta2 = group->beta2.value_or(settings.beta2);
    settings.eps = group->eps.value_or(settings.eps);
  }
  return settings;
}

std::string ParameterGroups::unused(const std::vector<std::string>& names) const {
  for (const ParameterGroup& group : groups_) {
    const bool used = std::any_of(names.begin(), names.end(), [&](const std::string& name) { return find(name) == &group; });
    if (!used) return group.pattern;
  }
  return {};
}

}  // namespace troupe
