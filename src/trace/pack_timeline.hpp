#pragma once
#include <string>

#include "src/trace/run_timeline.hpp"

namespace troupe {

/// What the viewer reads (tools/web/timeline): a header in JSON (names, ranks with their clocks, rows, counters, marks, steps, and where
/// each column lies) and columns of numbers, one behind the other, compressed by zlib's deflate. Little endian. Times are nanoseconds
/// since the first event; those of a row are differences to the one before, which compress best.
struct PackedTimeline {
  std::string header;      ///< JSON
  std::string compressed;  ///< a zlib stream, as DecompressionStream("deflate") takes it
  std::size_t spans = 0, letters = 0;
};

/// `title` is shown by the viewer.
[[nodiscard]] PackedTimeline pack_timeline(const RunTimeline& timeline, const std::string& title);

}  // namespace troupe
