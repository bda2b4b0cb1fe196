#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tools/foresight/simulate.hpp"

namespace troupe {

/// What a run with a trace has measured.
struct RunProfile {
  JobConfig config;
  std::uint32_t ranks = 1;
  std::vector<TracedSpan> spans;  ///< of all ranks
  double step_seconds = 0;        ///< the median
};
/// Of a run's folder: config.toml, metrics.jsonl and trace/rank-N.json. The error says what is missing, and how to get it.
[[nodiscard]] Result<RunProfile> read_profile(const std::filesystem::path& run);

/// How a model of a device has to be corrected, so that simulations of the profiled runs take what the runs took.
struct Calibration {
  OperationCosts::Factors factors;
  double letter_us = 0;
  std::vector<std::string> report;  ///< a line for each kind: what was measured, what the roofline says
};
/// Mean durations of operations by kind, in seconds: of each operation of a step the shortest of the ranks (whoever waits for nobody), of these the
/// median over the steps `first` and later. `costs` names the kinds.
[[nodiscard]] std::map<OperationCosts::Kind, double> durations_by_kind(const std::vector<TracedSpan>& spans, const OperationCosts& costs, Step first);
/// Simulates each profiled run, compares every kind's duration, corrects, and again, until both agree: so that time which operations lost to
/// each other on shared cores is not counted twice. Then the time of a letter, so that the steps agree. Runs of one rank first.
[[nodiscard]] Result<Calibration> calibrate(const std::vector<RunProfile>& runs, const ClusterModel& cluster);

}  // namespace troupe
