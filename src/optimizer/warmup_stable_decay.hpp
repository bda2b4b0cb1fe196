#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/ids.hpp"
#include "src/base/result.hpp"
#include "src/optimizer/settings.hpp"

namespace troupe {

enum class DecayCurve : std::uint8_t { linear, sqrt, cosine };
/// "linear", "sqrt" or "cosine"; the error names the three.
[[nodiscard]] Result<DecayCurve> decay_curve_named(std::string_view name);

/// Factor of the peak learning rate of a warm-up / stable / decay schedule. A pure value: any thread, never blocks.
/// Source: torchtitan `lr_scheduler`. The factor of a step depends on the step alone, so a resumed run repeats it.
struct WarmupStableDecay {
  std::uint64_t warmup = 0;  ///< steps of linear rise; the first step already trains
  std::uint64_t stable = 1;  ///< steps at the peak, counting one virtual step after the last, so that the last still trains
  std::uint64_t decay = 0;   ///< steps of fall
  DecayCurve curve = DecayCurve::linear;
  double floor = 0.0;

  /// `step` counts from 1; progress is held within [0, 1], so a step past the last keeps the floor.
  [[nodiscard]] double factor(Step step) const noexcept;
};

/// A schedule and what had to be changed to fit it into the run, for the log.
struct FittedSchedule {
  WarmupStableDecay schedule;
  std::vector<std::string> warnings;
};

/// A warm-up longer than the run is cut to it, a decay longer than what is left to that; each with a warning. The settings are checked
/// ones: an unknown curve throws std::invalid_argument.
[[nodiscard]] FittedSchedule fit_schedule(const ScheduleSettings& settings, std::uint64_t training_steps);

}  // namespace troupe
