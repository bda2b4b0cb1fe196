#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "actors/change_requests.hpp"
#include "actors/job_view.hpp"

namespace troupe {

/// What came in from outside and was dropped.
struct RefusedInput {
  std::uint64_t connections = 0;                ///< of the control port
  std::map<std::string, std::uint64_t> frames;  ///< letters to the launcher, by reason ("mac", "sequence", "incarnation"; messages/frame.hpp)
  [[nodiscard]] std::string text() const;       ///< one line with its end; empty: nothing was
};

/// Answers what a tool asks of a live run, both JSON: {"ask": "inspect"}, {"ask": "inject", "rule": …}, {"ask": "set", "changes": […], "dry_run": …, "by":
/// who},
/// {"ask": "trace"} (answered {"folder": …, "files": [what the processes will write into it]}).
/// What cannot be read or done is answered {"error": …}. `change`: has a change agreed upon; may block for a second or two. `record`: has the timelines
/// written, and says into which folder.
[[nodiscard]] std::string answer_request(const std::string& request, const JobBoard& board, const RefusedInput& refused, Nanos now,
                                         const std::function<Result<std::string>()>& record, const std::function<Result<Agreed>(ChangeRequest)>& change);

}  // namespace troupe
