#include "tools/foresight/profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "src/runtime/describe.hpp"
#include "src/trace/chrome_trace.hpp"

namespace troupe {
namespace {

constexpr std::uint64_t warm_up = 3;  ///< steps in which caches and allocators settle

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

/// "gather L3 (backward)", "forward L0 m1", "verdict": what a lane's span is of. Nothing: no operation of a plan.
std::optional<Fact> fact_of(const std::string& name) {
  constexpr std::array kinds{OperationKind::load,       OperationKind::scales, OperationKind::gather,     OperationKind::forward, OperationKind::backward,
                             OperationKind::accumulate, OperationKind::reduce, OperationKind::all_reduce, OperationKind::verdict, OperationKind::optimize,
                             OperationKind::snapshot,   OperationKind::save,   OperationKind::keep};
  const std::string word = name.substr(0, name.find(' '));
  for (const OperationKind kind : kinds) {
    if (word != name_of(kind)) continue;
    Fact fact{.kind = kind, .unit = {}, .micro = {}, .backward = name.ends_with("(backward)")};
    if (const std::size_t at = name.find(" L"); at != std::string::npos) fact.unit = Unit{static_cast<std::uint32_t>(std::atoi(name.c_str() + at + 2))};
    return fact;
  }
  return std::nullopt;
}

bool is_lane(const std::string& track) {
  for (std::size_t i = 0; i < lane_count; ++i)
    if (track == name_of(static_cast<LaneKind>(i))) return true;
  return false;
}

/// One simulation of a profiled run with what is known so far.
Result<Simulation> repeat(const RunProfile& run, const ClusterModel& cluster, const Calibration& so_far) {
  SimulationOptions options;
  options.ranks = run.ranks;
  options.cluster = cluster;
  options.cluster.device.letter_us = so_far.letter_us;
  options.factors = so_far.factors;
  options.steps = 5;
  options.unfolded = 256;
  options.keep_all_spans = true;
  return simulate_run(run.config, options);
}

/// The runs' own letter time: so that the step of the last run, which has the most ranks, takes what it took.
Result<void> fit_letters(const RunProfile& run, const ClusterModel& cluster, Calibration& calibration) {
  double low = 0, high = 2000;
  for (int i = 0; i < 9; ++i) {
    calibration.letter_us = (low + high) / 2;
    const auto simulated = repeat(run, cluster, calibration);
    if (!simulated) return simulated.error();
    (simulated->step_seconds > run.step_seconds ? high : low) = calibration.letter_us;
  }
  calibration.letter_us = low;
  return {};
}

}  // namespace

Result<RunProfile> read_profile(const std::filesystem::path& run) {
  auto config = JobConfig::load(run / "config.toml");
  if (!config) return Error{"--profile takes the folder of a run: " + config.error().message};
  RunProfile profile{.config = std::move(*config), .ranks = 0, .spans = {}};
  auto files = rank_traces(run / "trace");
  std::erase_if(files, [](const auto& file) { return file.filename() == launcher_trace; });  // runs no operation
  if (files.empty()) return Error{"--profile: " + (run / "trace").string() + " holds no timelines of ranks; the run needs trace.enable = true"};
  for (const auto& file : files) {
    auto spans = read_spans(file);
    if (!spans) return spans.error();
    profile.spans.insert(profile.spans.end(), spans->begin(), spans->end());
  }
  std::uint32_t most = 0;
  for (const TracedSpan& span : profile.spans) most = std::max(most, span.rank.value());
  profile.ranks = most + 1;
  std::ifstream metrics(run / "metrics.jsonl");
  std::vector<double> steps;
  for (std::string line; std::getline(metrics, line);) {
    const auto entry = nlohmann::json::parse(line, nullptr, false);
    if (entry.is_discarded() || !entry.contains("step_seconds") || entry["step"].get<std::uint64_t>() <= warm_up) continue;
    steps.push_back(entry["step_seconds"].get<double>());
  }
  if (steps.empty()) return Error{fmt::format("--profile: {} has no steps after step {}", (run / "metrics.jsonl").string(), warm_up)};
  profile.step_seconds = median(steps);
  return profile;
}

std::map<OperationCosts::Kind, double> durations_by_kind(const std::vector<TracedSpan>& spans, const OperationCosts& costs, Step first) {
  struct Shortest {
    Fact fact;
    double seconds;
  };
  std::map<std::pair<Step, std::string>, Shortest> shortest;
  for (const TracedSpan& span : spans) {
    if (span.step < first || !is_lane(span.track)) continue;
    const auto fact = fact_of(span.name);
    if (!fact) continue;
    const double took = static_cast<double>((span.ended - span.started).count()) * 1e-9;
    Shortest& entry = shortest.try_emplace({span.step, span.name}, Shortest{*fact, took}).first->second;
    entry.seconds = std::min(entry.seconds, took);
  }
  std::map<std::string, std::pair<OperationCosts::Kind, std::vector<double>>> by_operation;
  for (const auto& [where, entry] : shortest) {
    auto& operation = by_operation[where.second];
    operation.first = costs.kind_of(entry.fact);
    operation.second.push_back(entry.seconds);
  }
  std::map<OperationCosts::Kind, std::vector<double>> medians;
  for (const auto& [name, operation] : by_operation) medians[operation.first].push_back(median(operation.second));
  std::map<OperationCosts::Kind, double> means;
  for (const auto& [kind, values] : medians) {
    double sum = 0;
    for (const double value : values) sum += value;
    means[kind] = sum / static_cast<double>(values.size());
  }
  return means;
}

Result<Calibration> calibrate(const std::vector<RunProfile>& runs, const ClusterModel& cluster) {
  std::vector<const RunProfile*> order;
  for (const RunProfile& run : runs) order.push_back(&run);
  std::ranges::stable_sort(order, {}, &RunProfile::ranks);
  Calibration calibration;
  calibration.letter_us = cluster.device.letter_us;
  for (const RunProfile* run : order) {
    const OperationCosts::Factors before = calibration.factors;
    for (int round = 0; round < 4; ++round) {
      const auto simulated = repeat(*run, cluster, calibration);
      if (!simulated) return simulated.error();
      const Estimate& e = simulated->estimate;
      const OperationCosts costs({e.training, e.job.options, cluster, state_bytes(e.job, e.training)});
      const auto measured = durations_by_kind(run->spans, costs, Step{warm_up + 1});
      const auto found = durations_by_kind(simulated->outcome.spans, costs, simulated->first);
      for (const auto& [kind, took] : measured) {
        const auto there = found.find(kind);
        if (there == found.end() || there->second <= 0 || before.contains(kind)) continue;  // what an earlier run said holds
        double& factor = calibration.factors
                             .try_emplace(kind,
                                          [&] {
                                            const auto other = before.find({kind.operation, kind.unit, !kind.shared});
                                            return other == before.end() ? 1.0 : other->second;
                                          }())
                             .first->second;
        factor *= took / there->second;
        if (round == 3)
          calibration.report.push_back(fmt::format("{:<28} {:>10.3f} ms measured, {:>8.3f} × the roofline", OperationCosts::name_of(kind), 1e3 * took, factor));
      }
    }
  }
  if (auto fitted = fit_letters(*order.back(), cluster, calibration); !fitted) return fitted.error();
  return calibration;
}

}  // namespace troupe
