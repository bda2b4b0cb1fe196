#pragma once
#include <string>
#include <vector>

#include "tools/foresight/simulate.hpp"

namespace troupe {

/// What a change of a live run (`troupe set`) would do: the run before it and after it, and the new epoch between two steps.
struct ChangeForecast {
  std::vector<std::string> changes;  ///< "slots.weights=3"
  Simulation before, after;          ///< each undisturbed
  double pause = 0;                  ///< seconds from the last step before to the first one after, without that step's own time

  /// Steps after which a faster run has made up for the pause; infinity where it is not faster.
  [[nodiscard]] double made_up_after() const noexcept;
};

/// Simulates the run as it is, as the change makes it, and through the change: all ranks drain, leave their state in the launchers' memory, are built anew and
/// read it, by the real Coordinator and Supervisors. Blocks. The error is what `troupe set` refuses, that the change takes no new epoch, or simulate_run's.
[[nodiscard]] Result<ChangeForecast> forecast_change(const JobConfig& config, const SimulationOptions& options, const std::vector<std::string>& changes);
[[nodiscard]] std::string change_forecast_text(const ChangeForecast& forecast);
[[nodiscard]] std::string change_forecast_json(const ChangeForecast& forecast);

}  // namespace troupe
