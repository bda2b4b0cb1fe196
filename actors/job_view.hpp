#pragma once
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "actors/membership.hpp"
#include "src/base/clock.hpp"
#include "src/base/ids.hpp"

namespace troupe {

/// One rank, by its last heartbeat.
struct RankView {
  JoinedRank joined;
  Pulse pulse;
  bool resting = false;  ///< stopped, or joined anew, while the job recovers
};

/// A change that was agreed.
struct ChangeView {
  std::uint64_t number = 0;  ///< from 1
  Step from = {};            ///< the first step with it
  std::string text = {}, by = {};
  enum class State : std::uint8_t { waits, in_force, refused } state = State::in_force;
  std::string problem = {};  ///< why it was refused after all
  bool epoch = false;        ///< takes a new epoch
  std::vector<Rank> joins = {}, leaves = {};
  /// "from step 7 on: optimizer.lr=1e-4 (troupe set)".
  [[nodiscard]] std::string line() const;
};

/// A job at one moment, as its Coordinator knows it. A value.
struct JobView {
  Nanos taken{0};
  std::string phase;  ///< "running", "recovering", …
  std::uint32_t world_size = 0;
  EpochId epoch;
  Step newest, granted, last;   ///< told by all ranks; may be begun; of the run
  Nanos progress_at{0};         ///< when the newest step was told
  double steps_per_second = 0;  ///< over the last steps; 0: not known
  std::string restore;          ///< where a fault would go back to
  std::uint64_t respawns = 0, rollbacks = 0;
  std::vector<RankView> ranks;  ///< in rank order; absent ones are missing
  std::vector<Rank> absent;
  std::vector<ChangeView> changes;  ///< agreed so far

  /// "rank 2 (pid 77 on host) has been silent for 41.0 s … and holds up the others in comm: reduce L5", "rank 1 is absent", or how far the run
  /// is; one line. `now`: of the same clock.
  [[nodiscard]] std::string headline(Nanos now) const;
  /// The headline, then each rank and its actors.
  [[nodiscard]] std::string text(Nanos now) const;
};

/// Where the Coordinator leaves the newest view and others look at it, also while ranks hang. Any thread.
class JobBoard {
 public:
  void put(JobView view) {
    const std::lock_guard lock(mutex_);
    view_ = std::move(view);
  }
  [[nodiscard]] JobView get() const {
    const std::lock_guard lock(mutex_);
    return view_;
  }

 private:
  mutable std::mutex mutex_;
  JobView view_;
};

}  // namespace troupe
