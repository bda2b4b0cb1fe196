#include "tools/foresight/slot_replay.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "src/config/load_extension.hpp"
#include "src/runtime/describe.hpp"
#include "tools/launcher/live_config.hpp"

namespace troupe {
namespace {

Nanos nanos_of(double seconds) { return Nanos{std::llround(seconds * 1e9)}; }

/// The same with one slot more of this edge.
JobConfig with_one_more(const JobConfig& config, EdgeKind edge, const SlotCounts& now) {
  JobConfig more = config;
  if (edge == EdgeKind::batches) ++more.slots.batches;
  if (edge == EdgeKind::weights) more.slots.weights = now.weights + 1;
  if (edge == EdgeKind::gradients) ++more.slots.gradients;
  return more;
}

}  // namespace

Result<JobConfig> config_of_run(const std::filesystem::path& run, Step at, std::uint32_t ranks) {
  const auto config = with_extension(JobConfig::load(run / "config.toml", {}));
  if (!config) return config.error();
  LiveConfig live(*config, LiveConfig::Start{.schedule_before = {}, .step = {}, .ranks = ranks});
  if (auto planned = live.plan(config->live.changes); !planned) return planned.error();
  std::ifstream journal(run / "journal.jsonl");
  for (std::string line; std::getline(journal, line);) {
    const auto event = nlohmann::json::parse(line, nullptr, false);
    if (!event.is_object()) continue;  // the last line of a live run may not be whole
    const std::string what = event.value("event", "");
    if (what == "changed") {
      if (auto changed = live.change(event.at("changes").get<std::vector<std::string>>(), Step{event.at("from_step").get<std::uint64_t>()}); !changed)
        return changed.error();
    } else if (what == "change_refused") {
      live.withdraw(Step{event.at("from_step").get<std::uint64_t>()});
    }
  }
  return live.epoch_config(at, ranks);
}

ClusterModel cluster_of_run(const JobConfig& config) {
  ClusterModel cluster = cluster_of(config.runtime.device == "cuda" ? "h200" : "cpu").value();
  if (cluster.device.cores > 0) cluster.device.cores = std::max(1U, std::thread::hardware_concurrency());
  return cluster;
}

Result<SlotReplay> replay_slots(const RunProfile& run, const ClusterModel& cluster) {
  const auto measured = calibrate({run}, cluster);
  if (!measured) return measured.error();
  SimulationOptions options;
  options.ranks = run.ranks;
  options.cluster = cluster;
  options.cluster.device = measured->device;
  options.factors = measured->factors;
  if (!cluster.device.gpu()) options.unfolded = std::max(options.unfolded, run.ranks);
  const auto now = simulate_run(run.config, options);
  if (!now) return now.error();
  SlotReplay replay{.step = nanos_of(now->step_seconds), .with_one_more = {}};
  for (const EdgeKind edge : {EdgeKind::batches, EdgeKind::weights, EdgeKind::gradients}) {
    const auto more = simulate_run(with_one_more(run.config, edge, now->estimate.job.slots), options);
    if (more) replay.with_one_more[name_of(edge)] = nanos_of(more->step_seconds);  // else one more cannot be: weights that stay have one a unit
  }
  return replay;
}

}  // namespace troupe
