#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "tools/foresight/simulate.hpp"

namespace troupe {

/// What a run with a trace has measured.
struct RunProfile {
  JobConfig config;
  std::uint32_t ranks = 1;
  std::vector<TracedSpan> spans;  ///< of all ranks, on one clock
  double step_seconds = 0;        ///< the mean of the steps that these are of
};
/// Of a run's folder: config.toml, metrics.jsonl and trace/rank-N.json; the middle half of its steps by their length. The error says what is missing, and how
/// to get it.
[[nodiscard]] Result<RunProfile> read_profile(const std::filesystem::path& run);

/// How a model of a device has to be corrected, so that simulations of the profiled runs take what the runs took.
struct Calibration {
  DeviceModel device;               ///< with the efficiencies that the runs' forwards and backwards tell of, the time of a letter, what cores share
  OperationCosts::Factors factors;  ///< what is left between this device's roofline and what was measured, by kind and size
  std::vector<std::string> report;  ///< a line for each kind: what was measured, what the roofline says; then what a letter takes, and each run's step
};
/// Takes the work out of each operation's time (work_by_kind), the device's efficiencies out of forwards and backwards, what shared cores do together
/// out of runs of several ranks beside runs of fewer, and the time of a letter out of the steps, which then agree best. Never measured twice:
/// one of these knows nothing of the others' errors.
[[nodiscard]] Result<Calibration> calibrate(const std::vector<RunProfile>& runs, const ClusterModel& cluster);

}  // namespace troupe
