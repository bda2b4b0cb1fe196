#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.hpp"
#include "src/optimizer/adamw_settings.hpp"

namespace troupe {

/// Parameters whose name holds a match of `pattern` (a regular expression of ECMAScript), and what is different for them.
struct ParameterGroup {
  std::string pattern;
  std::optional<double> lr_factor, weight_decay, beta1, beta2, eps;
};

/// Hyper-parameters by parameter: one line of `optimizer.param_groups` each, "match=REGEX lr_factor=0.1 weight_decay=0"; the first that matches
/// wins. A value: any thread, never blocks.
class ParameterGroups {
 public:
  /// The error names the line, what was found in it and what may stand there. Of the checked `[optimizer]` section.
  [[nodiscard]] static Result<ParameterGroups> of(const OptimizerSettings& settings);
  ParameterGroups() = default;

  /// `base` with what the group of the parameter changes; `vector`: of one dimension (norms, biases).
  [[nodiscard]] AdamWSettings settings_of(const AdamWSettings& base, std::string_view name, bool vector) const;
  /// The first pattern that no name matches; empty: all do.
  [[nodiscard]] std::string unused(const std::vector<std::string>& names) const;
  [[nodiscard]] bool empty() const noexcept { return groups_.empty() && decay_vectors_; }

 private:
  [[nodiscard]] const ParameterGroup* find(std::string_view name) const;
  std::vector<ParameterGroup> groups_;
  bool decay_vectors_ = true;
};

}  // namespace troupe
