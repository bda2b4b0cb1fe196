#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

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
  Step restored;  ///< newest sealed checkpoint that it found; 0: none
};

/// What a rank waits for, by its last heartbeat.
struct Pulse {
  Nanos heard{0};      ///< when the Coordinator heard it
  Step step;           ///< that the rank is at
  std::string oldest;  ///< "comm: gather L2", empty when nothing is pending
  Nanos oldest_age{0};
};

/// Who belongs to the job and what was last heard of each. Pure; the Coordinator's handlers only.
class Membership {
 public:
  /// Every Join is kept, also one too many: decide_epoch() refuses those by name.
  void joined(JoinedRank rank) { joined_.push_back(std::move(rank)); }
  void heard(Rank rank, Pulse pulse) { pulses_[rank] = std::move(pulse); }
  [[nodiscard]] const std::vector<JoinedRank>& all_joined() const noexcept { return joined_; }
  [[nodiscard]] const std::map<Rank, Pulse>& pulses() const noexcept { return pulses_; }
  /// The member whose heartbeat is older than `limit`, the oldest first: dead, or its process is stopped.
  [[nodiscard]] std::optional<Rank> silent(Nanos now, Nanos limit) const;
  /// "rank 1 at step 8 waits 12.0 s for comm: gather L2; rank 0 at …": the slowest first, but for those in `without`. One line for the
  /// watchdog's error.
  [[nodiscard]] std::string describe_slowest(const std::set<Rank>& without = {}) const;

 private:
  std::vector<JoinedRank> joined_;
  std::map<Rank, Pulse> pulses_;
};

}  // namespace troupe
