#include "tools/web/timeline_page.hpp"

#include "src/trace/pack_timeline.hpp"
#include "tools/web/page.hpp"

namespace troupe {

std::string timeline_page(const RunTimeline& timeline, const std::string& title) {
  const PackedTimeline packed = pack_timeline(timeline, title);
  std::string page = whole_page("timeline");
  put_json(page, "timeline-header", packed.header);
  put_bytes(page, "timeline-data", packed.compressed);
  return page;
}

}  // namespace troupe
