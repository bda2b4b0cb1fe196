#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/trace/run_timeline.hpp"

namespace troupe {

/// Slots of an edge as a run's configuration has them.
struct EdgeSlots {
  std::string edge;
  std::uint32_t slots = 0;
  std::uint64_t slot_bytes = 0;
};

/// The steps' operations played again, as long as each took, with other numbers of slots: what a step takes then.
struct SlotReplay {
  Nanos step{0};                               ///< with the slots that there are
  std::map<std::string, Nanos> with_one_more;  ///< by the edge that has one slot more
};

/// What the time of some steps went into. Times are nanoseconds over all of the steps; shares are in [0, 1].
struct TraceReport {
  struct Lane {
    std::string lane;
    Nanos busy{0};
    double share = 0;                    ///< of the rank's window
    std::map<std::string, Nanos> waits;  ///< idle time by what ended it: "gathered weights", "a free slot of gradients", …
    std::map<std::string, Nanos> kinds;  ///< busy time by kind of operation
    std::size_t operations = 0;
  };
  struct OfRank {
    Rank rank;
    Nanos window{0};  ///< from the end of the step before the first to the end of the last
    std::vector<Lane> lanes;
    Nanos communication{0};                    ///< lane comm's busy time
    Nanos exposed{0};                          ///< the part of it with the compute lane idle
    double overlap = 0;                        ///< 1 − exposed / communication; 0 without communication
    Nanos for_peers{0};                        ///< inside collectives, until the last rank had come
    std::size_t collectives = 0, last_in = 0;  ///< how many, and in how many of them it was the last to come
    Nanos kept_others{0};                      ///< how long the others waited in collectives that it was the last to come to
    Nanos worst_step{0};                       ///< its longest
  };
  struct Hop {
    Rank rank;
    std::string lane, operation;
    Step step;
    Nanos gap{0};     ///< between the end of what it waited for and its start
    Nanos length{0};  ///< of the operation, as far as the path needs it
    std::string via;  ///< what it waited for: "lane", a letter's kind, "device", "rank 3"
  };
  struct Advice {
    std::string edge;
    Nanos waited{0};  ///< of all steps and ranks: compute stood idle for want of one of its slots
    std::uint32_t slots = 0;
    std::uint64_t slot_bytes = 0;  ///< what one more costs each rank; 0: unknown
    Nanos gained{0};               ///< of a step with one more; 0 without a replay
  };
  Step first, last;
  std::size_t steps = 0;
  Nanos step_time{0};  ///< mean, of the slowest rank
  double bubble = 0;   ///< of all ranks' time between the first and last compute operation of a step on any rank, the part without compute
  std::vector<OfRank> ranks;
  std::vector<Hop> path;  ///< the critical path, from its start on
  Nanos path_length{0}, path_gaps{0};
  std::map<std::string, Nanos> path_kinds;
  std::vector<Advice> advice;  ///< the three edges that gain most, most first; without a replay: that most was waited for
  std::optional<SlotReplay> replay;
  std::uint64_t overwritten = 0;
};

/// Looks at `steps`, or all that are whole: the timeline's first step is left out where others follow, for its start is not known.
/// An error where the timeline holds no operation of those steps.
[[nodiscard]] Result<TraceReport> report_of(const RunTimeline& timeline, std::optional<std::pair<Step, Step>> steps = {},
                                            const std::vector<EdgeSlots>& edges = {}, std::optional<SlotReplay> replay = {});

[[nodiscard]] std::string report_text(const TraceReport& report);
[[nodiscard]] std::string report_json(const TraceReport& report);
/// Two reports side by side: what a step takes in each, and what of it changed.
[[nodiscard]] std::string compare_text(const TraceReport& one, const TraceReport& other, const std::string& name, const std::string& other_name);

}  // namespace troupe
