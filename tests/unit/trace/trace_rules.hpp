#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace troupe::testing {

/// What a viewer would not take of a trace: fields missing or of a wrong type, spans of a row that neither nest nor are disjoint, an
/// async span without its end, rows and processes without a name, times or ids that a double does not hold. Empty: all is well.
[[nodiscard]] std::vector<std::string> broken_rules(const nlohmann::json& trace);

/// Events of one phase.
[[nodiscard]] std::vector<nlohmann::json> events_of(const nlohmann::json& trace, const std::string& phase);

}  // namespace troupe::testing
