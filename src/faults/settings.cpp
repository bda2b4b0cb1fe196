#include "src/faults/settings.hpp"

namespace troupe {
namespace {

/// What a worker could not obey though the rule is well formed; empty: nothing.
std::string refusal(const FaultRule& rule) {
  if (rule.site == FaultSite::storage && rule.action == FaultAction::stall && rule.duration == Nanos{0})
    return "nothing ends a stall of storage but its time: give it, as in for=2s";
  if (rule.site == FaultSite::process && rule.action != FaultAction::crash) return "a process can crash; to hold it up use site=lane action=stall";
  if (rule.site == FaultSite::process && (!rule.kind.empty() || rule.micro || rule.unit)) return "a process is asked once a step; drop kind, micro and unit";
  if (rule.action == FaultAction::delay && rule.duration == Nanos{0}) return "a delay needs its length, as in for=5ms";
  return {};
}

}  // namespace

Result<std::vector<FaultRule>> rules_of(const FaultSettings& settings) {
  std::vector<FaultRule> rules;
  for (const std::string& text : settings.rules) {
    const auto at = "rule " + std::to_string(rules.size() + 1) + ", '" + text + "': ";
    const auto rule = parse_fault_rule(text);
    if (!rule) return Error{at + rule.error().message};
    if (const std::string why = refusal(*rule); !why.empty()) return Error{at + why};
    rules.push_back(*rule);
  }
  return rules;
}

}  // namespace troupe
