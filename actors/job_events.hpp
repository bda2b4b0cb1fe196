#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "actors/device_powers.hpp"
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
  /// What a device of the epoch's ranks is able to; before its first step.
  virtual void devices(const DevicePowers& /*of_each*/) {}
  virtual void step(const StepRecord& record) = 0;
  /// The checkpoint of this step was sealed, or (with `problem`) given up.
  virtual void checkpoint(Step step, const std::string& problem) = 0;
  virtual void stop_requested(const std::string& reason, Step at) = 0;
  virtual void fault(const std::string& cause, Rank rank, bool first) = 0;
  /// The fault ends the epoch, not the run: another follows. `attempts`: epochs that have ended since the newest step.
  virtual void recovering(EpochId /*ended*/, std::uint32_t /*attempts*/) {}
  /// The rank's process is started again as this incarnation; what is left of the one before is killed first.
  virtual void respawn(Rank /*rank*/, Incarnation /*incarnation*/) {}
  /// The first step since the fault that was not told before; `took`: since the fault was noticed.
  virtual void recovered(EpochId /*epoch*/, Step /*step*/, Nanos /*took*/) {}
  /// The guard rolls training back: it goes on with the step after this one, from an earlier state.
  virtual void rolled_back(Step /*step*/, const EpochOrigin& /*to*/, const std::string& /*why*/) {}
  /// The snapshot in memory after this step is sealed.
  virtual void kept(Step /*step*/, EpochId /*epoch*/) {}
  /// The snapshot in memory after this step will not be sealed: a rank's part, or its copy on another host, is not whole.
  virtual void not_kept(Step /*step*/, Rank /*rank*/, const std::string& /*problem*/) {}
  /// What every rank was at when a time limit ended the epoch.
  virtual void flight_record(const std::string& /*text*/) {}
  /// A fault rule, counted from 0, has fired on a rank.
  virtual void fault_fired(Rank /*rank*/, std::uint32_t /*rule*/, const Where& /*where*/, const std::string& /*operation*/) {}
  /// A change of the configuration was agreed: it takes effect with this step.
  virtual void changed(Step /*from*/, const std::vector<std::string>& /*changes*/, const std::string& /*by*/) {}
  /// What was agreed and takes a new epoch is in force, or (with `problem`) was refused by a rank after all.
  virtual void change_settled(Step /*from*/, const std::string& /*change*/, const std::string& /*problem*/) {}
  /// All have reported the last step of the epoch: it ends, and another follows with other members or another configuration.
  virtual void epoch_ends(EpochId /*epoch*/, Step /*after*/) {}
  /// A process is started to join the run as this rank.
  virtual void rank_added(Rank /*rank*/, Incarnation /*incarnation*/) {}
  /// The rank is no member any more; so many are left.
  virtual void rank_let_go(Rank /*rank*/, std::uint32_t /*left*/) {}
  /// Exactly once, last.
  virtual void finished(const JobEnd& end) = 0;
};

}  // namespace troupe
