#include "src/optimizer/warmup_stable_decay.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>

namespace troupe {

Result<DecayCurve> decay_curve_named(std::string_view name) {
  if (name == "linear") return DecayCurve::linear;
  if (name == "sqrt") return DecayCurve::sqrt;
  if (name == "cosine") return DecayCurve::cosine;
  return Error{"lr_scheduler.decay_type is \"" + std::string(name) + "\"; it must be \"linear\", \"sqrt\" or \"cosine\""};
}

double WarmupStableDecay::factor(Step step) const noexcept {
  const std::uint64_t s = std::max<std::uint64_t>(step.value(), 1) - 1;
  if (s < warmup) return static_cast<double>(s + 1) / static_cast<double>(warmup);
  if (s < warmup + stable) return 1.0;
  if (decay == 0) return 1.0;
  const double progress = std::min(1.0, static_cast<double>(s + 1 - warmup - stable) / static_cast<double>(decay));
  double fall = 1.0 - progress;
  if (curve == DecayCurve::sqrt) fall = 1.0 - std::sqrt(progress);
  if (curve == DecayCurve::cosine) fall = 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  return floor + (1.0 - floor) * fall;
}

FittedSchedule fit_schedule(const ScheduleSettings& settings, std::uint64_t training_steps) {
  FittedSchedule fitted;
  const Result<DecayCurve> curve = decay_curve_named(settings.decay_type);
  if (!curve) throw std::invalid_argument(curve.error().message);
  const std::uint64_t total = settings.total_steps ? static_cast<std::uint64_t>(*settings.total_steps) : training_steps;
  auto warmup = static_cast<std::uint64_t>(settings.warmup_steps);
  if (warmup > total) {
    fitted.warnings.push_back("lr_scheduler.warmup_steps is " + std::to_string(warmup) + " but the run has " + std::to_string(total) +
                              " steps: the warm-up is cut to the run");
    warmup = total;
  }
  // nearbyint rounds halves to even, as Python's round.
  std::uint64_t decay = settings.decay_ratio ? static_cast<std::uint64_t>(std::nearbyint(static_cast<double>(total) * *settings.decay_ratio)) : total - warmup;
  if (warmup + decay > total) {
    fitted.warnings.push_back("lr_scheduler: warm-up of " + std::to_string(warmup) + " and decay of " + std::to_string(decay) + " steps exceed the run's " +
                              std::to_string(total) + ": the decay is cut to " + std::to_string(total - warmup));
    decay = total - warmup;
  }
  fitted.schedule = {warmup, total + 1 - warmup - decay, decay, *curve, settings.min_lr_factor};
  return fitted;
}

}  // namespace troupe
