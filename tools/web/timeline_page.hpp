#pragma once
#include <string>

#include "src/trace/run_timeline.hpp"

namespace troupe {

/// The timeline as one page that needs no other file and no network; docs/timeline.md says what it shows.
[[nodiscard]] std::string timeline_page(const RunTimeline& timeline, const std::string& title);

}  // namespace troupe
