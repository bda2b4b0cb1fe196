#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "messages/actor_kind.hpp"
#include "src/base/clock.hpp"
#include "src/base/ids.hpp"

namespace troupe {

/// What a rank said when it joined.
struct JoinedRank {
  Rank rank;
  std::uint32_t world_size = 0;
  std::uint64_t config_hash = 0;
  std::string host;
  std::uint32_t pid = 0;
  Step restored;                 ///< newest sealed checkpoint that it found; 0: none
  Incarnation incarnation = {};  ///< of its process
};

/// What one of a rank's actors last said of itself.
struct ActorPulse {
  ActorKind actor{};
  std::string text;     ///< plan position, slots, lanes, last letter
  std::string waiting;  ///< for what; empty: nothing
};

/// What a rank waits for, by its last heartbeat.
struct Pulse {
  Nanos heard{0};      ///< when the Coordinator heard it
  Step step;           ///< that the rank is at
  std::string oldest;  ///< "comm: gather L2", empty when nothing is pending
  Nanos oldest_age{0};
  std::vector<ActorPulse> actors = {};
  std::uint64_t resident_bytes = 0;  ///< of its process
};

/// Who belongs to the job and what was last heard of each. Pure; the Coordinator's handlers only.
class Membership {
 public:
  /// Every Join is kept, also one too many: decide_epoch() refuses those by name.
  void joined(JoinedRank rank) { joined_.push_back(std::move(rank)); }
  /// Its process is gone, or taken for dead: forgotten until it joins again.
  void left(Rank rank);
  [[nodiscard]] bool known(Rank rank) const noexcept { return std::ranges::find(joined_, rank, &JoinedRank::rank) != joined_.end(); }
  void heard(Rank rank, Pulse pulse) { pulses_[rank] = std::move(pulse); }
  [[nodiscard]] const std::vector<JoinedRank>& all_joined() const noexcept { return joined_; }
  [[nodiscard]] const std::map<Rank, Pulse>& pulses() const noexcept { return pulses_; }
  /// Has this rank been silent for longer than `limit`? Unknown ranks have not.
  [[nodiscard]] bool silent(Rank rank, Nanos now, Nanos limit) const;
  /// The member whose heartbeat is older than `limit`, the oldest first: dead, or its process is stopped.
  [[nodiscard]] std::optional<Rank> silent(Nanos now, Nanos limit) const;
  /// "rank 1 at step 8 waits 12.0 s for comm: gather L2; rank 0 at …": the slowest first, but for those in `without`. One line for the
  /// watchdog's error.
  /// Who holds the others up: a rank that has been silent for longer than `silence` (its process is stopped, or hangs), else the one furthest
  /// behind whose own work, not a collective, is pending. Nothing: nobody stands out.
  struct Culprit {
    Rank rank;
    bool silent = false;
    std::string text;  ///< "rank 2 (pid 77 on host) has been silent for 4.0 s, … and holds up the others in comm: gather L2"
  };
  [[nodiscard]] std::optional<Culprit> culprit(Nanos now, Nanos silence) const;
  [[nodiscard]] std::string describe_slowest(const std::set<Rank>& without = {}) const;

 private:
  [[nodiscard]] std::string name_of_place(Rank rank) const;
  std::vector<JoinedRank> joined_;
  std::map<Rank, Pulse> pulses_;
};

}  // namespace troupe
