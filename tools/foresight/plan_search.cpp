#include "tools/foresight/plan_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "src/metrics/console_line.hpp"

namespace troupe {
namespace {

constexpr std::size_t most_simulated = 24, most_shown = 10;

/// What stands in the way of enumerating: numbers of ranks that divide.
std::vector<std::int64_t> divisors(std::int64_t number) {
  std::vector<std::int64_t> all;
  for (std::int64_t d = 1; d <= number; ++d)
    if (number % d == 0) all.push_back(d);
  return all;
}

struct Recomputation {
  const char *name, *mode, *option;
};
constexpr Recomputation recomputations[] = {{"none", "none", "2"}, {"selective op", "selective", "op"}, {"full", "full", "2"}};

/// The configuration with the same rows a step, in micro-batches of so many rows of each of `ranks` ranks.
JobConfig with_mesh(const JobConfig& config, std::int64_t rows_of_a_step, std::int64_t replicate, std::int64_t shard, std::int64_t rows) {
  JobConfig changed = config;
  changed.parallelism.data_parallel_replicate_degree = replicate;
  changed.parallelism.data_parallel_shard_degree = shard;
  changed.training.local_batch_size = rows;
  changed.training.global_batch_size = rows_of_a_step;
  return changed;
}

/// All that differs beside the mesh and the rows.
std::vector<PlanCandidate> variants(const JobConfig& meshed, std::int64_t replicate, std::int64_t shard, bool several_micro_batches) {
  std::vector<PlanCandidate> all;
  for (const Recomputation& again : recomputations) {
    for (const char* reshard : {"default", "never"}) {
      for (const char* reduce : {"every", "last"}) {
        if (!several_micro_batches && std::string(reduce) == "last") continue;
        PlanCandidate candidate{.config = meshed, .replicate = replicate, .shard = shard, .recompute = again.name};
        candidate.config.activation_checkpoint.mode = again.mode;
        candidate.config.activation_checkpoint.selective_ac_option = again.option;
        candidate.config.parallelism.fsdp_reshard_after_forward = reshard;
        candidate.config.parallelism.reduce_gradients = reduce;
        candidate.config.slots.weights.reset();
        all.push_back(std::move(candidate));
      }
    }
  }
  return all;
}

std::vector<PlanCandidate> candidates(const JobConfig& config, std::int64_t ranks) {
  const std::int64_t rows_of_a_step = config.global_rows(ranks);
  std::vector<PlanCandidate> all;
  for (const std::int64_t replicate : divisors(ranks)) {
    for (const std::int64_t rows : {1, 2, 4, 8, 16, 32}) {
      if (rows * ranks > rows_of_a_step || rows_of_a_step % (rows * ranks) != 0) continue;
      const JobConfig meshed = with_mesh(config, rows_of_a_step, replicate, ranks / replicate, rows);
      for (PlanCandidate& candidate : variants(meshed, replicate, ranks / replicate, rows * ranks < rows_of_a_step)) all.push_back(std::move(candidate));
    }
  }
  return all;
}

/// Estimates; nothing: it cannot be planned, or does not fit.
bool estimate_candidate(PlanCandidate& candidate, const SimulationOptions& options, PlanSearch& search) {
  const auto estimate = estimate_run(candidate.config, options.ranks, options.cluster);
  if (!estimate) return false;
  candidate.device_bytes = estimate->memory.device();
  candidate.roofline_seconds = estimate->roofline.step;
  const double gib = static_cast<double>(candidate.device_bytes) / 1073741824.0;
  search.smallest_gib = search.looked_at == 0 ? gib : std::min(search.smallest_gib, gib);
  ++search.looked_at;
  return estimate->fits();
}

bool simulate_candidate(PlanCandidate& candidate, const SimulationOptions& options) {
  const auto simulated = simulate_run(candidate.config, options);
  if (!simulated || !simulated->estimate.fits()) return false;
  candidate.step_seconds = simulated->step_seconds;
  candidate.tokens_per_second = simulated->tokens_per_second * options.ranks;
  candidate.device_bytes = simulated->estimate.memory.device();
  return true;
}

/// One slot more of weights and gradients, where weights are gathered again.
PlanCandidate with_a_slot_more(PlanCandidate candidate) {
  candidate.config.slots.gradients += 1;
  if (candidate.config.parallelism.fsdp_reshard_after_forward != "never") candidate.config.slots.weights = 3;
  return candidate;
}

bool faster(const PlanCandidate& a, const PlanCandidate& b) {
  if (a.step_seconds != b.step_seconds) return a.step_seconds < b.step_seconds;
  return a.device_bytes < b.device_bytes;
}

}  // namespace

Result<PlanSearch> search_plans(const JobConfig& config, const SimulationOptions& given) {
  SimulationOptions options = given;
  options.steps = 4;
  if (options.cluster.device.gpu()) options.unfolded = 4;
  PlanSearch search{.ranks = options.ranks, .device = options.cluster.device.name, .memory_gib = options.cluster.device.memory_gib, .best = {}};
  std::vector<PlanCandidate> fitting;
  for (PlanCandidate& candidate : candidates(config, options.ranks))
    if (estimate_candidate(candidate, options, search)) fitting.push_back(std::move(candidate));
  if (search.looked_at == 0) {
    const auto reason = estimate_run(config, options.ranks, options.cluster);
    if (!reason) return reason.error();
    return Error{fmt::format("{} rows of a step do not divide over {} ranks; set training.global_batch_size to a multiple", config.global_rows(options.ranks),
                             options.ranks)};
  }
  search.fitting = fitting.size();
  std::ranges::stable_sort(fitting, {}, &PlanCandidate::roofline_seconds);
  fitting.resize(std::min(fitting.size(), most_simulated));
  for (const PlanCandidate& promising : fitting) {
    for (PlanCandidate candidate : {promising, with_a_slot_more(promising)}) {
      if (!simulate_candidate(candidate, options)) continue;
      ++search.simulated;
      search.best.push_back(std::move(candidate));
    }
  }
  std::ranges::stable_sort(search.best, faster);
  if (search.best.size() > most_shown) search.best.resize(most_shown);
  return search;
}

std::string short_toml(const JobConfig& config) {
  const auto lines = [](const std::string& toml) {
    std::vector<std::pair<std::string, std::string>> found;  // section, line
    std::istringstream in(toml);
    std::string section;
    for (std::string line; std::getline(in, line);) {
      if (line.starts_with('['))
        section = line;
      else if (!line.empty())
        found.emplace_back(section, line);
    }
    return found;
  };
  const auto usual = lines(JobConfig::defaults().to_toml());
  std::string text, section;
  for (const auto& entry : lines(config.to_toml())) {
    if (std::ranges::find(usual, entry) != usual.end()) continue;
    if (entry.first != section) text += (text.empty() ? "" : "\n") + entry.first + "\n";
    section = entry.first;
    text += entry.second + "\n";
  }
  return text;
}

std::string plan_search_text(const PlanSearch& s) {
  std::string text = fmt::format("{} plans for {} ranks of {} were looked at, {} fit into {:.1f} GiB, {} were simulated\n", s.looked_at, s.ranks, s.device,
                                 s.fitting, s.memory_gib, s.simulated);
  if (s.best.empty()) return text + fmt::format("nothing fits: the smallest takes {:.2f} GiB a rank; use more ranks or shorter sequences\n", s.smallest_gib);
  text += fmt::format("  {:>3} {:>12} {:>14} {:>9} {:>9} {:>5} {:>7} {:<13} {:<8} {:<7} {:>7} {:>9}\n", "#", "step, ms", "tokens/s, all", "GiB/rank",
                      "replicate", "shard", "rows", "recomputed", "weights", "reduce", "w slots", "g slots");
  for (std::size_t i = 0; i < s.best.size(); ++i) {
    const PlanCandidate& c = s.best[i];
    const bool kept = c.config.parallelism.fsdp_reshard_after_forward == "never";
    const std::string rows = fmt::format("{}×{}", c.config.training.local_batch_size, c.config.micro_batches(s.ranks));
    text += fmt::format("  {:>3} {:>12.3f} {:>14} {:>9.2f} {:>9} {:>5} {:>7} {:<13} {:<8} {:<7} {:>7} {:>9}\n", i + 1, 1e3 * c.step_seconds,
                        with_thousands(c.tokens_per_second, 0), static_cast<double>(c.device_bytes) / 1073741824.0, c.replicate, c.shard, rows, c.recompute,
                        kept ? "kept" : "again", c.config.parallelism.reduce_gradients,
                        kept ? std::string("all") : std::to_string(c.config.slots.weights.value_or(2)), c.config.slots.gradients);
  }
  return text;
}

std::string plan_search_json(const PlanSearch& s) {
  nlohmann::ordered_json best = nlohmann::ordered_json::array();
  for (const PlanCandidate& c : s.best) {
    best.push_back({{"step_seconds", c.step_seconds},
                    {"tokens_per_second_of_all", c.tokens_per_second},
                    {"device_bytes", c.device_bytes},
                    {"replicate", c.replicate},
                    {"shard", c.shard},
                    {"local_batch_size", c.config.training.local_batch_size},
                    {"micro_batches", c.config.micro_batches(s.ranks)},
                    {"recomputed", c.recompute},
                    {"fsdp_reshard_after_forward", c.config.parallelism.fsdp_reshard_after_forward},
                    {"reduce_gradients", c.config.parallelism.reduce_gradients},
                    {"slots_weights", c.config.slots.weights ? nlohmann::ordered_json(*c.config.slots.weights) : nlohmann::ordered_json(nullptr)},
                    {"slots_gradients", c.config.slots.gradients}});
  }
  const nlohmann::ordered_json out{{"ranks", s.ranks},     {"device", s.device},       {"looked_at", s.looked_at},
                                   {"fitting", s.fitting}, {"simulated", s.simulated}, {"smallest_gib", s.smallest_gib},
                                   {"best", best}};
  return out.dump(2) + "\n";
}

}  // namespace troupe
