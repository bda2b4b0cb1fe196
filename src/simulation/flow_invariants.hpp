#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "messages/letter.hpp"
#include "src/device/lane.hpp"
#include "src/runtime/plan_set.hpp"
#include "src/simulation/findings.hpp"

namespace troupe {

/// Watches letters and lanes and compares with the plan: order of issue, the ledger of steps and batches, equal verdicts, one epoch.
/// One thread.
class FlowInvariants {
 public:
  explicit FlowInvariants(Findings& findings) : findings_(findings) {}
  /// The rank's plans for an epoch that begins at `first`; before its lanes get anything.
  void begin_epoch(Rank rank, EpochId epoch, Step first, std::shared_ptr<const PlanSet> plans);

  void posted(Rank rank, LaneKind lane, const LaneOperation& operation);
  void finished(Rank rank, LaneKind lane, const LaneOperation& operation, const Outcome& outcome);
  /// So many operations went with their process.
  void lost(std::size_t operations) noexcept { open_ -= static_cast<std::int64_t>(operations); }
  void sent(const schema::Envelope::Reader& envelope);

  /// The run ended well with `last` done: every rank has posted, loaded and reported all of it.
  void expect_complete(Step last);
  /// The first outcome of an operation of the newest epoch that was not ok; empty: all were.
  [[nodiscard]] const std::string& first_failure() const noexcept { return first_failure_; }
  /// Operations that lanes have taken and not yet ended.
  [[nodiscard]] std::int64_t open_operations() const noexcept { return open_; }
  [[nodiscard]] Step reported(Rank rank) const;

 private:
  struct Cursor {
    Step step;
    std::size_t next = 0;  ///< in the plan, over all lanes
  };
  struct RankState {
    EpochId epoch;
    Step first;
    std::shared_ptr<const PlanSet> plans;
    std::map<LaneKind, Cursor> lanes;
    std::map<Step, StepKind> kinds;
    std::set<std::pair<Step, Micro>> loaded, computed;
    Step reported;  ///< last step with a StepReport
  };
  struct Verdict {
    std::uint16_t outcome;
    double loss, grad_norm;
    std::uint64_t tokens;
    bool operator==(const Verdict&) const = default;
  };

  void step_report(RankState& state, std::uint32_t rank, Step step, EpochId epoch, schema::StepReport::Reader report);
  void expect_all_posted(std::uint32_t rank, const RankState& state, Step last);
  void once(std::set<std::pair<Step, Micro>>& seen, const schema::Envelope::Reader& envelope, const char* what);
  [[nodiscard]] const Plan& plan_of(const RankState& state, Step step) const;
  /// The next operation of this lane at or after the cursor, in its step; the plan's end if there is none.
  [[nodiscard]] static std::size_t next_of(const Plan& plan, LaneKind lane, std::size_t from);

  Findings& findings_;
  std::map<std::uint32_t, RankState> ranks_;
  std::map<Step, std::pair<std::uint32_t, Verdict>> verdicts_;  ///< with the rank that said so first
  EpochId newest_, begun_;
  std::string first_failure_;
  std::int64_t open_ = 0;
};

}  // namespace troupe
