#pragma once
#include <string>
#include <vector>

#include "src/simulation/operation_costs.hpp"

namespace troupe {

/// A forward or backward whose time is known: what it is made of by the model's rates, and what it took of a core.
struct MeasuredWork {
  WorkTime parts;
  double seconds = 0;
};

/// The device with efficiencies and launch time at which the measured work is met best: least squares of relative errors over non-negative multipliers of
/// each kind of work, drawn towards one for all where the measurements do not tell them apart. Without any: the device as it is.
[[nodiscard]] DeviceModel fitted(DeviceModel device, const std::vector<MeasuredWork>& measured);
/// "products 41 % of the rate, attention …": what `fitted` has found.
[[nodiscard]] std::string efficiencies_text(const DeviceModel& device);

}  // namespace troupe
