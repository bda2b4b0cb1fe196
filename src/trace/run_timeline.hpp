#pragma once
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/result.hpp"
#include "src/trace/trace_event.hpp"

namespace troupe {

/// The launcher's process among the ranks of a timeline.
inline constexpr Rank launcher_clock{0xffffffffU};

/// How a rank's clock differs from the reference's, as the timestamps of letters between them tell.
struct ClockOffset {
  Rank rank;
  bool known = false;       ///< letters went both ways between it and the reference, straight or by way of others
  Nanos offset{0};          ///< its clock minus the reference's at the middle of the timeline, as estimated
  Nanos error{0};           ///< half of the shortest way there and back: the offset lies within ± this
  double drift = 0;         ///< seconds a second
  Nanos middle{0};          ///< the time by the reference's clock at which `offset` holds
  std::size_t letters = 0;  ///< that the estimate stands on
  bool applied = false;     ///< false: the offset lies within its error, as of clocks of one host, and times stay as they are
};

/// A run's timeline: all ranks on one clock.
struct RunTimeline {
  std::vector<RankTrace> ranks;                     ///< in the order of ranks; the launcher's, if there, is the last
  std::vector<ClockOffset> clocks;                  ///< one for each of `ranks`; empty: not estimated
  std::optional<std::pair<Step, Step>> steps = {};  ///< that it was cut to
};

/// Is it a lane's row? Others are actors', the transport's, the process's own and the marks'.
[[nodiscard]] bool is_lane_row(std::string_view track);
/// The first and last step of which ranks hold an operation of a lane; none where there is no such.
[[nodiscard]] std::optional<std::pair<Step, Step>> steps_held(std::span<const RankTrace> ranks);
/// What to say of steps that were asked for and are not held.
[[nodiscard]] Error no_such_steps(std::pair<Step, Step> wanted, std::optional<std::pair<Step, Step>> held);

/// Reads a file of write_chrome_trace back: one RankTrace for each of its processes. The error names the file and what is wrong.
[[nodiscard]] Result<std::vector<RankTrace>> read_chrome_trace(const std::filesystem::path& file);

/// Estimates, for each rank, the offset of its clock to that of the launcher (without one: of the first rank) over the letters that
/// went both ways: the shortest way there and the shortest back bound it, as in NTP. Where a timeline is long the estimate is a line.
[[nodiscard]] std::vector<ClockOffset> estimate_clocks(std::span<const RankTrace> ranks);
/// Puts every event on the reference's clock. An offset within its error is left alone; sets `applied`.
void align_clocks(std::vector<RankTrace>& ranks, std::vector<ClockOffset>& clocks);

/// Keeps what belongs to steps first … last, what counts slots in between, and all marks.
void keep_steps(RankTrace& trace, Step first, Step last);

/// All files on one clock, cut to `steps` where given. An error where a file cannot be read, or no rank holds an operation of these steps.
[[nodiscard]] Result<RunTimeline> read_run_timeline(std::span<const std::filesystem::path> files, std::optional<std::pair<Step, Step>> steps = {});

/// A line a rank: "rank 1: clock 5.000 ms ahead of the launcher's, to within ± 0.031 ms (842 letters)".
[[nodiscard]] std::string describe(std::span<const ClockOffset> clocks);

}  // namespace troupe
