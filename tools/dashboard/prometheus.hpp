#pragma once
#include <string>
#include <vector>

#include "tools/launcher/step_times.hpp"

namespace troupe {

/// A job in Prometheus' text format, version 0.0.4. Names and meanings: docs/dashboard.md.
/// `view`: the answer to {"ask": "inspect"}; `newest`: a line of metrics.jsonl, or empty.
[[nodiscard]] std::string prometheus_text(const std::string& view, const std::string& newest, std::uint64_t not_committed,
                                          const std::vector<StepTimes::Entry>& times);

}  // namespace troupe
