#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/base/ids.hpp"

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

/// Which states the job can go back to, and which of the two snapshots in memory may be overwritten. Of these one is always sealed (once
/// there was one), for a copy begins only when the one before is sealed or given up. Pure; the Coordinator's handlers only.
class RestoreBook {
 public:
  static constexpr std::uint32_t slots = 2;

  /// `base`: where the run began, a sealed checkpoint or 0. `keep_every`: steps between snapshots in memory; 0: none.
  RestoreBook(Step base, std::uint32_t keep_every);
  /// The newest by step; of two with the same step the one in memory.
  [[nodiscard]] EpochOrigin newest() const;
  void sealed_on_disk(Step step);

  /// Is the state after this step to be copied into memory, and into which slot? Ask once for each step that is granted, in order: a yes
  /// opens the copy. No while another is open; what is due then is made up for by the next step.
  [[nodiscard]] std::optional<std::uint32_t> open_keep(Step step, EpochId epoch, std::uint32_t ranks);
  /// The slot that does not hold the newest, to leave the state in at the end of an epoch; what it held is gone. A copy that is open is given up.
  [[nodiscard]] std::uint32_t open_hand_over();
  /// All members have left their state there.
  void handed_over(Step step, EpochId epoch, std::uint32_t slot);
  /// A rank has told of its part; `ok`: it is whole. True when with it the snapshot of this step became sealed.
  bool kept(Step step, Rank rank, bool ok);
  /// All ranks have reported the step too.
  bool reported(Step step);
  /// A fault: an open copy is given up.
  void epoch_ended() noexcept { open_.reset(); }
  /// The epoch begins at `point`: what was copied after it in an epoch that is over belongs to a past that is run anew.
  void epoch_begins(const EpochOrigin& point);
  /// The older of the snapshots in memory, when there are two: nothing before it is gone back to, but for what lies on disk.
  [[nodiscard]] std::optional<Step> oldest_kept() const;
  /// The point could not be read: the next newest() is another. The seed stays.
  void lost(const EpochOrigin& point);

 private:
  struct OpenKeep {
    EpochOrigin point;
    std::uint32_t ranks = 0;
    std::set<Rank> parts;
    bool reported = false, failed = false;
  };
  bool close_if_whole();
  [[nodiscard]] std::uint32_t clear_older_slot();

  EpochOrigin base_;
  std::uint32_t keep_every_;
  std::set<Step> disk_;
  std::array<std::optional<EpochOrigin>, slots> memory_;
  std::optional<OpenKeep> open_;
  bool overdue_ = false;
};

}  // namespace troupe
