#include "tools/foresight/profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "src/trace/chrome_trace.hpp"
#include "src/trace/run_timeline.hpp"
#include "tools/foresight/device_fit.hpp"
#include "tools/foresight/operation_work.hpp"

namespace troupe {
namespace {

constexpr std::uint64_t warm_up = 3;        ///< steps in which caches and allocators settle
constexpr double longest_letter_us = 1000;  ///< what takes longer is no letter

/// Steps that took neither very long nor very short: operations' means over them sum up to what such a step takes, which medians would not.
struct UsualSteps {
  std::set<Step> steps;
  double seconds = 0;  ///< their mean
};

/// The middle half of a run's steps behind the first ones.
Result<UsualSteps> usual_steps_of(const std::filesystem::path& metrics) {
  std::vector<std::pair<double, Step>> all;
  std::ifstream in(metrics);
  for (std::string line; std::getline(in, line);) {
    const auto entry = nlohmann::json::parse(line, nullptr, false);
    if (entry.is_discarded() || !entry.contains("step_seconds") || entry["step"].get<std::uint64_t>() <= warm_up) continue;
    all.emplace_back(entry["step_seconds"].get<double>(), Step{entry["step"].get<std::uint64_t>()});
  }
  if (all.empty()) return Error{fmt::format("--profile: {} has no steps after step {}", metrics.string(), warm_up)};
  std::ranges::sort(all);
  const std::size_t cut = all.size() / 4;
  UsualSteps usual;
  for (std::size_t i = cut; i < all.size() - cut; ++i) {
    usual.steps.insert(all[i].second);
    usual.seconds += all[i].first / static_cast<double>(all.size() - 2 * cut);
  }
  return usual;
}

/// A profiled run and what a model says of it.
struct Profiled {
  const RunProfile* run;
  Estimate estimate;
  std::map<OperationCosts::Kind, double> work;  ///< seconds of a core, of an operation
};

OperationCosts costs_of(const Profiled& profiled, const ClusterModel& cluster) {
  const Estimate& e = profiled.estimate;
  return OperationCosts({e.training, e.job.options, cluster, state_bytes(e.job, e.training)});
}

/// Any operation of a kind: those of a class are alike.
Fact fact_of(const OperationCosts::Kind& kind, std::size_t units) {
  const std::size_t unit = kind.unit == UnitClass::first ? 0 : kind.unit == UnitClass::last ? units - 1 : std::min<std::size_t>(1, units - 1);
  return {.kind = kind.operation, .unit = Unit{static_cast<std::uint32_t>(unit)}, .micro = {}, .backward = false};
}

bool is_compute(const OperationCosts::Kind& kind) { return kind.operation == OperationKind::forward || kind.operation == OperationKind::backward; }

class Calibrator {
 public:
  explicit Calibrator(const ClusterModel& cluster) : cluster_(cluster) {}

  Result<Calibration> calibrate(const std::vector<RunProfile>& runs) {
    if (runs.empty()) return Error{"nothing to calibrate with: give --profile RUN"};
    for (const RunProfile& run : runs) {
      auto estimate = estimate_run(run.config, run.ranks, cluster_);
      if (!estimate) return estimate.error();
      runs_.push_back({&run, std::move(*estimate), {}});
    }
    std::ranges::stable_sort(runs_, {}, [](const Profiled& profiled) { return profiled.run->ranks; });
    // What work is depends on what cores share, and what they share is found from the work.
    for (int round = 0; round < 3; ++round) {
      measure();
      fit_device();
      if (!fit_sharing()) break;
    }
    measure();
    fit_device();
    find_factors();
    if (auto fitted = fit_letters(); !fitted) return fitted.error();
    calibration_.device = cluster_.device;
    return std::move(calibration_);
  }

 private:
  void measure() {
    for (Profiled& profiled : runs_) profiled.work = work_by_kind(profiled.run->spans, costs_of(profiled, cluster_), cluster_.device.capacity());
  }

  /// Forwards and backwards of the runs with the fewest ranks, which lose the least to each other.
  void fit_device() {
    std::vector<MeasuredWork> measured;
    for (const Profiled& profiled : runs_) {
      if (profiled.run->ranks != runs_.front().run->ranks) continue;
      for (const auto& [kind, seconds] : profiled.work) {
        if (!is_compute(kind)) continue;
        const std::size_t unit = fact_of(kind, profiled.estimate.training.units.size()).unit.value();
        measured.push_back({time_of(profiled.estimate.training, unit, kind.operation == OperationKind::backward, cluster_.device), seconds});
      }
    }
    cluster_.device = fitted(cluster_.device, measured);
  }

  /// So that forwards and backwards of runs with more ranks are the work that those of runs with fewer ranks say. False: nothing to learn it from.
  bool fit_sharing() {
    if (cluster_.device.cores < 2 || runs_.front().run->ranks == runs_.back().run->ranks) return false;
    double low = 1 / static_cast<double>(cluster_.device.cores), high = 1;  // all together do at least the work of one
    for (int i = 0; i < 12; ++i) {
      cluster_.device.core_sharing = (low + high) / 2;
      (more_than_expected() > 1 ? high : low) = cluster_.device.core_sharing;
    }
    return true;
  }

  /// What runs with more ranks measure of forwards and backwards, by what the device's model says.
  [[nodiscard]] double more_than_expected() const {
    double sum = 0;
    int runs = 0;
    for (const Profiled& profiled : runs_) {
      if (profiled.run->ranks == runs_.front().run->ranks) continue;
      const OperationCosts costs = costs_of(profiled, cluster_);
      double found = 0, expected = 0;
      for (const auto& [kind, seconds] : work_by_kind(profiled.run->spans, costs, cluster_.device.capacity())) {
        if (!is_compute(kind)) continue;
        const auto times = static_cast<double>(kind.unit == UnitClass::block ? costs.units() - 2 : 1);
        found += times * seconds;
        expected += times * seconds_of(costs.of(fact_of(kind, costs.units())));
      }
      sum += found / expected;
      ++runs;
    }
    return sum / runs;
  }

  void find_factors() {
    calibration_.report.push_back(efficiencies_text(cluster_.device));
    if (cluster_.device.cores > 0)
      calibration_.report.push_back(fmt::format("{} cores do the work of {:.2f} when all are busy", cluster_.device.cores, cluster_.device.capacity()));
    for (const Profiled& profiled : runs_) {
      const OperationCosts costs = costs_of(profiled, cluster_);
      for (const auto& [kind, seconds] : profiled.work) {
        const bool fewest = profiled.run->ranks == runs_.front().run->ranks;
        if (!fewest && measured_by_fewer_.contains(kind)) continue;  // those lose less to each other
        if (fewest) measured_by_fewer_.insert(kind);
        const double roofline = seconds_of(costs.of(fact_of(kind, costs.units())));
        if (roofline <= 0) continue;
        calibration_.factors[kind].add(roofline, seconds / roofline);
        calibration_.report.push_back(
            fmt::format("{:<28} {:>10.3f} ms of a core, {:>8.3f} × the roofline", OperationCosts::name_of(kind), 1e3 * seconds, seconds / roofline));
      }
    }
  }

  [[nodiscard]] Result<double> simulated_step(const RunProfile& run, double letter_us) const {
    SimulationOptions options;
    options.ranks = run.ranks;
    options.cluster = cluster_;
    options.cluster.device.letter_us = letter_us;
    options.factors = calibration_.factors;
    options.steps = 5;
    options.unfolded = 256;
    const auto simulated = simulate_run(run.config, options);
    if (!simulated) return simulated.error();
    return simulated->step_seconds;
  }

  /// The time at which the steps of all runs agree best: simulated by measured is one in their mean.
  Result<void> fit_letters() {
    double low = 0, high = longest_letter_us;
    for (int i = 0; i < 10; ++i) {
      const double middle = (low + high) / 2;
      double sum = 0;
      for (const Profiled& profiled : runs_) {
        const auto step = simulated_step(*profiled.run, middle);
        if (!step) return step.error();
        sum += *step / profiled.run->step_seconds;
      }
      (sum > static_cast<double>(runs_.size()) ? high : low) = middle;
    }
    cluster_.device.letter_us = low;
    calibration_.report.push_back(fmt::format("an operation begins {:.0f} us after what it waits for, letters and handlers in between", low));
    for (const Profiled& profiled : runs_) {
      const auto step = simulated_step(*profiled.run, low);
      if (!step) return step.error();
      calibration_.report.push_back(fmt::format("{} rank{}: a step took {:.3f} ms, simulated {:.3f} ms, {:+.1f} %", profiled.run->ranks,
                                                profiled.run->ranks == 1 ? "" : "s", 1e3 * profiled.run->step_seconds, 1e3 * *step,
                                                100 * (*step / profiled.run->step_seconds - 1)));
    }
    return {};
  }

  ClusterModel cluster_;
  std::vector<Profiled> runs_;
  std::set<OperationCosts::Kind> measured_by_fewer_;
  Calibration calibration_;
};

}  // namespace

Result<RunProfile> read_profile(const std::filesystem::path& run) {
  auto config = JobConfig::load(run / "config.toml");
  if (!config) return Error{"--profile takes the folder of a run: " + config.error().message};
  RunProfile profile{.config = std::move(*config), .ranks = 0, .spans = {}};
  auto files = rank_traces(run / "trace");
  std::erase_if(files, [](const auto& file) { return file.filename() == launcher_trace; });  // runs no operation
  if (files.empty()) return Error{"--profile: " + (run / "trace").string() + " holds no timelines of ranks; the run needs trace.enable = true"};
  const auto timeline = read_run_timeline(files);
  if (!timeline) return timeline.error();
  const auto usual = usual_steps_of(run / "metrics.jsonl");
  if (!usual) return usual.error();
  for (const RankTrace& rank : timeline->ranks) {
    for (TracedSpan& span : spans_of(rank))
      if (usual->steps.contains(span.step)) profile.spans.push_back(std::move(span));
  }
  if (profile.spans.empty())
    return Error{fmt::format("--profile: the timelines in {} hold none of the run's usual steps: a larger trace.events keeps more", (run / "trace").string())};
  profile.ranks = static_cast<std::uint32_t>(timeline->ranks.size());
  profile.step_seconds = usual->seconds;
  return profile;
}

Result<Calibration> calibrate(const std::vector<RunProfile>& runs, const ClusterModel& cluster) { return Calibrator(cluster).calibrate(runs); }

}  // namespace troupe
