#pragma once
#include <functional>
#include <string>

#include "actors/change_requests.hpp"
#include "actors/job_view.hpp"

namespace troupe {

/// Answers what a tool asks of a live run, both JSON: {"ask": "inspect"}, {"ask": "inject", "rule": …}, {"ask": "set", "changes": […], "dry_run": …}.
/// What cannot be read or done is answered {"error": …}. `change`: has a change agreed upon; may block for a second or two.
[[nodiscard]] std::string answer_request(const std::string& request, const JobBoard& board, Nanos now,
                                         const std::function<Result<Agreed>(ChangeRequest)>& change);

}  // namespace troupe
