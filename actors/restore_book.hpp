#pragma once
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/base/ids.hpp"
#include "src/runtime/snapshot_policy.hpp"

namespace troupe {

/// A state that an epoch can begin from, the same on all ranks.
struct EpochOrigin {
  enum class Place : std::uint8_t {
    seed,   ///< step 0: initialised anew
    disk,   ///< the sealed checkpoint of `step`
    memory  ///< the host agents' memory, slot `slot`, copied in `epoch` after `step`
  };
  Place place = Place::seed;
  Step step;
  EpochId epoch;           ///< memory: in which it was copied
  std::uint32_t slot = 0;  ///< memory: 0 or 1
  bool operator==(const EpochOrigin&) const = default;
};
/// "the seed", "the checkpoint of step 20", "the snapshot of step 18 in memory".
[[nodiscard]] std::string describe(const EpochOrigin& point);

/// Which states the job can go back to, and which of the snapshots in memory may be overwritten. Of these one is always sealed (once
/// there was one), for a copy begins only when the one before is sealed or given up. Pure; the Coordinator's handlers only.
class RestoreBook {
 public:
  /// `base`: where the run began, a sealed checkpoint or 0.
  /// `copies`: a part counts only once it is told of as copied too (copied()).
  RestoreBook(Step base, SnapshotPolicy policy, bool copies = false);
  RestoreBook(Step base, std::uint32_t keep_every) : RestoreBook(base, SnapshotPolicy{.keep_every = keep_every}) {}
  /// From which training goes on furthest; of two with the same step the one in memory.
  [[nodiscard]] EpochOrigin newest() const;
  /// False: it is of a past that training has left, and nothing goes back to it.
  bool sealed_on_disk(Step step);
  /// Of what this run has sealed and training has not left; nothing: none.
  [[nodiscard]] std::optional<Step> newest_on_disk() const { return disk_.empty() ? std::nullopt : std::optional(*disk_.rbegin()); }

  /// The state that a rollback after `done` leads to: the newest that is `steps_back` steps old. Where only the run's beginning is so old and snapshots
  /// should lie between, for some were lost, the oldest of them.
  [[nodiscard]] EpochOrigin way_back(Step done, std::uint32_t steps_back) const;
  /// Training goes on from `point` with the step after `done`; the data of the steps between are not seen again, and what is newer than the point is
  /// forgotten. Later ones replace it.
  void go_back_to(const EpochOrigin& point, Step done);
  /// The step after which an epoch that begins at `point` goes on: the point's own, unless training was rolled back to it.
  [[nodiscard]] Step goes_on_after(const EpochOrigin& point) const;
  /// The last step that may be granted now: with rollbacks a snapshot is taken of no other step than its own, so that step waits for the copy before.
  [[nodiscard]] Step may_grant_until(Step granted) const;

  /// Is the state after this step to be copied into memory, and into which slot? Ask once for each step that is granted, in order: a yes
  /// opens the copy. No while another is open; what is due then is made up for by the next step.
  [[nodiscard]] std::optional<std::uint32_t> open_keep(Step step, EpochId epoch, std::uint32_t ranks);
  /// A slot that does not hold the newest, to leave the state in at the end of an epoch; what it held is gone. A copy that is open is given up.
  [[nodiscard]] std::uint32_t open_hand_over();
  /// All members have left their state there.
  void handed_over(Step step, EpochId epoch, std::uint32_t slot);
  /// A rank has told of its part; `ok`: it is whole. True when with it the snapshot of this step became sealed.
  bool kept(Step step, Rank rank, bool ok);
  /// The same of its copy on another host; of another epoch's snapshot it changes nothing.
  bool copied(Step step, EpochId epoch, Rank rank, bool ok);
  /// All ranks have reported the step too.
  bool reported(Step step);
  /// A fault: an open copy is given up.
  void epoch_ended() noexcept { open_.reset(); }
  /// The epoch begins at `point`: what was copied after it in an epoch that is over belongs to a past that is run anew.
  void epoch_begins(const EpochOrigin& point);
  /// The oldest of the snapshots in memory, when there are two or more: nothing before it is gone back to, but for what lies on disk.
  [[nodiscard]] std::optional<Step> oldest_kept() const;
  /// The oldest epoch in which one of them was kept, when there are two or more.
  [[nodiscard]] std::optional<EpochId> oldest_epoch_kept() const;
  /// The point could not be read: the next newest() is another. False: it is what the run began with, and there is no other.
  [[nodiscard]] bool lost(const EpochOrigin& point);

 private:
  struct OpenKeep {
    EpochOrigin point;
    std::uint32_t ranks = 0;
    std::set<Rank> parts;
    std::set<Rank> copies = {};
    bool reported = false, failed = false;
  };
  bool close_if_whole();
  /// Of the points in memory, when there are two or more.
  template <class Of>
  [[nodiscard]] std::optional<Of> least(Of EpochOrigin::*of) const;
  /// On disk, then in memory; without `base_`.
  [[nodiscard]] std::vector<EpochOrigin> all() const;
  /// The first that is free, else the oldest one's.
  [[nodiscard]] std::uint32_t clear_slot();

  EpochOrigin base_;
  SnapshotPolicy policy_;
  bool copies_;
  struct WayBack {
    EpochOrigin point;
    Step done;
  };
  std::optional<WayBack> way_back_;  ///< the newest
  std::set<Step> disk_;
  std::vector<std::optional<EpochOrigin>> memory_;  ///< by slot
  std::optional<OpenKeep> open_;
  bool overdue_ = false;
};

}  // namespace troupe
