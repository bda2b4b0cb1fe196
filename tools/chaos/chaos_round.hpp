#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "src/base/clock.hpp"
#include "src/base/ids.hpp"

namespace troupe {

/// One thing that is done to a run on purpose.
struct Disturbance {
  enum class Kind : std::uint8_t {
    rule,           ///< a fault rule, given to the run before it starts
    kill,           ///< kill -9 of a worker from outside
    stop,           ///< SIGSTOP of a worker: it hangs
    kill_launcher,  ///< kill -9 of the launcher; then the job is started again in the same folder
  };
  Kind kind = Kind::rule;
  std::string rule;  ///< of Kind::rule
  Rank rank;
  Step step;                      ///< not before this step is told
  bool while_recovering = false;  ///< not before the run recovers from another fault
  bool at_checkpoint = false;     ///< rule: needs checkpoints; kill_launcher: as soon as one is being written
  Nanos pause{0};                 ///< from then to the signal
  bool operator==(const Disturbance&) const = default;
};

/// "kill -9 of rank 2 at step 40".
[[nodiscard]] std::string describe(const Disturbance& disturbance);

/// What a round does, drawn from its seed alone.
struct ChaosRound {
  std::uint64_t seed = 0;
  std::uint32_t memory_interval = 10;     ///< steps between snapshots in memory; 0: none
  std::uint32_t checkpoint_interval = 0;  ///< steps between checkpoints; 0: none are written
  std::vector<Disturbance> disturbances;
  bool operator==(const ChaosRound&) const = default;
};

/// What there is to strike at.
struct ChaosTarget {
  std::uint32_t ranks = 2;
  std::uint64_t steps = 100;  ///< of the undisturbed run; at least `ChaosTarget::fewest_steps`
  std::uint32_t units = 4;    ///< embedding, blocks, head
  static constexpr std::uint64_t fewest_steps = 20;
};

/// One disturbance, or two: far apart, at once, or the second while the run recovers from the first. All sites and actions of fault rules
/// occur, and signals. Pure: the same seed and target give the same round.
[[nodiscard]] ChaosRound draw_round(std::uint64_t seed, const ChaosTarget& target);

}  // namespace troupe
