#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/foresight/simulate.hpp"

namespace troupe {

/// What snapshots and recoveries cost, by simulation; seconds.
struct RecoveryCosts {
  double step = 0;      ///< seconds, without a snapshot
  double snapshot = 0;  ///< that a step with one is longer
  double recovery = 0;  ///< from a death to the beginning of the first step that runs again
  double save = 0;      ///< from the end of such a step until the snapshot can be restored from, where steps go on meanwhile
  /// What one snapshot costs where there is one in so many steps: the next one waits for the file of the one before.
  [[nodiscard]] double snapshot_every(std::uint64_t interval) const noexcept { return std::max(snapshot, save - static_cast<double>(interval) * step); }
};

/// Of a run in which some rank dies again and again, at random moments.
struct FaultForecast {
  struct Row {
    std::uint64_t interval = 1;      ///< steps between snapshots
    double simulated = 0, daly = 0;  ///< tokens/s of all ranks that are not lost again: by a walk through many deaths, by Daly's closed form
  };
  struct Policy {
    std::string name;
    RecoveryCosts costs;
    double young = 0;  ///< the best interval by Young's formula, in steps
    std::vector<Row> rows;
  };
  double between_deaths = 0;     ///< mean, seconds
  double undisturbed = 0;        ///< tokens/s of all ranks
  std::vector<Policy> policies;  ///< snapshots in the launchers' memory; checkpoints on disk, waited for or not
};

/// Part of the time that makes progress: snapshots of `snapshot` seconds after each `interval` seconds of work, deaths with this mean time between
/// them, `recovery` seconds each. Source: Daly, A higher order estimate of the optimum checkpoint interval, 2006, eq. 20.
[[nodiscard]] double daly_efficiency(double interval, double snapshot, double recovery, double between_deaths) noexcept;
/// The same by going from death to death, drawn from `seed`: what was done since the newest snapshot that can be restored from is lost each time.
[[nodiscard]] double walked_efficiency(const RecoveryCosts& costs, std::uint64_t interval, double between_deaths, std::uint64_t deaths, std::uint64_t seed);

/// Simulates snapshots and a death of each policy with the real actors, then goes from death to death for each interval. The error is simulate_run's.
[[nodiscard]] Result<FaultForecast> forecast_faults(const JobConfig& config, const SimulationOptions& options, double between_deaths,
                                                    const std::vector<std::uint64_t>& intervals);
[[nodiscard]] std::string fault_forecast_text(const FaultForecast& forecast);
[[nodiscard]] std::string fault_forecast_json(const FaultForecast& forecast);

}  // namespace troupe
