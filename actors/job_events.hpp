#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "actors/epoch_decision.hpp"
#include "actors/step_join.hpp"
#include "src/base/ids.hpp"

namespace troupe {

/// How a job ended.
struct JobEnd {
  bool ok = false;
  std::string cause;           ///< when not ok: the first fault, as one line
  std::optional<Rank> rank;    ///< at fault
  int signal = 0;              ///< of the process at fault, if it was seen dying
  Step last_step;              ///< newest step that all ranks reported
  bool on_request = false;     ///< somebody asked for the stop (Ctrl-C, SIGTERM)
  std::optional<Step> sealed;  ///< newest checkpoint that this run sealed
};

/// What the job tells the world around it: metric sinks, the journal, the console, main(). Called by the Coordinator's handlers, in
/// order; an implementation may write a line to a file, not more.
class JobEvents {
 public:
  virtual ~JobEvents() = default;
  virtual void joined(const JoinedRank& rank, std::uint32_t so_far) = 0;
  virtual void epoch_begun(const BeginEpoch& epoch) = 0;
  /// All ranks hold their state; the largest arena that one of them planned.
  virtual void epoch_ready(EpochId epoch, std::uint64_t arena_bytes) = 0;
  virtual void step(const StepRecord& record) = 0;
  /// The checkpoint of this step was sealed, or (with `problem`) given up.
  virtual void checkpoint(Step step, const std::string& problem) = 0;
  virtual void stop_requested(const std::string& reason, Step at) = 0;
  virtual void fault(const std::string& cause, Rank rank, bool first) = 0;
  /// Exactly once, last.
  virtual void finished(const JobEnd& end) = 0;
};

}  // namespace troupe
