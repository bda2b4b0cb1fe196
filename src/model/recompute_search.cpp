#include "src/model/recompute_search.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>

#include "src/model/tape_plan.hpp"

namespace troupe {
namespace {

constexpr std::size_t followed_plans = 4096;

std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

/// Steps whose results backward reads, or needs to compute what it reads, if nothing is kept; without those that are overwritten.
std::vector<std::size_t> steps_that_matter(const Tape& tape) {
  const std::vector<bool> again = steps_to_run_again(tape, std::vector<bool>(tape.steps.size(), false)), overwritten = overwritten_values(tape);
  std::vector<std::size_t> steps;
  for (std::size_t i = 0; i < again.size(); ++i) {
    if (again[i] && !overwritten[tape.steps[i].out[0]]) steps.push_back(i);
  }
  return steps;
}

/// Measures ways to run one unit by planning it between the first unit and the last.
class UnitScale {
 public:
  UnitScale(const ModelDescription& model, const WeightLayout& layout, const TapeSizes& sizes, std::size_t u) : sizes_(sizes) {
    for (const std::size_t unit : {std::size_t{0}, u, model.units.size() - 1}) {
      if (!place_.empty() && place_.back() == unit) continue;
      if (unit == u) at_ = place_.size();
      place_.push_back(unit);
      model_.units.push_back(model.units[unit]);
      layout_.units.push_back(layout.units[unit]);
      kept_.emplace_back(model.units[unit].tape.steps.size(), true);
    }
  }
  [[nodiscard]] const Tape& tape() const { return model_.units[at_].tape; }

  [[nodiscard]] UnitOption weigh(const std::vector<bool>& kept) {
    kept_[at_] = kept;
    const TapePlan plan = emit_tapes(model_, layout_, sizes_, {.kept = kept_});
    std::vector<std::uint32_t> forward_begin{0}, backward_begin(model_.units.size() + 1);
    for (const auto& unit : plan.forward) forward_begin.push_back(forward_begin.back() + static_cast<std::uint32_t>(unit.size()));
    backward_begin.back() = forward_begin.back();
    for (std::size_t u = model_.units.size(); u-- > 0;) backward_begin[u] = backward_begin[u + 1] + static_cast<std::uint32_t>(plan.backward[u].size());
    // Backward of unit u runs over [backward_begin[u + 1], backward_begin[u]).
    const auto saved_up_to = [&](std::size_t u) {
      std::size_t bytes = 0;
      for (const TapeBuffer& b : plan.buffers) bytes += b.first < forward_begin[u] && b.last >= backward_begin[u] ? aligned(b.bytes) : 0;
      return bytes;
    };
    std::vector<std::ptrdiff_t> change(backward_begin.front() + 1, 0);
    for (const TapeBuffer& b : plan.buffers) {
      if (b.first > b.last) continue;
      change[b.first] += static_cast<std::ptrdiff_t>(aligned(b.bytes));
      change[b.last + 1] -= static_cast<std::ptrdiff_t>(aligned(b.bytes));
    }
    std::ptrdiff_t live = 0, peak = 0;
    for (std::uint32_t t = 0; t < backward_begin.front(); ++t) {
      live += change[t];
      const bool own = (t >= forward_begin[at_] && t < forward_begin[at_ + 1]) || (t >= backward_begin[at_ + 1] && t < backward_begin[at_]);
      if (own) peak = std::max(peak, live);
    }
    const std::size_t before = saved_up_to(at_);
    return {kept, saved_up_to(at_ + 1) - before, static_cast<std::size_t>(peak) - before, cost_of_running_again(model_.units[at_], sizes_, kept).nanos};
  }

 private:
  ModelDescription model_;
  WeightLayout layout_;
  const TapeSizes& sizes_;
  std::vector<std::size_t> place_;
  std::size_t at_ = 0;
  KeptSteps kept_;
};

bool betters(const UnitOption& a, const UnitOption& b) { return a.saved <= b.saved && a.peak <= b.peak && a.nanos <= b.nanos; }

std::vector<UnitOption> worth_a_thought(std::vector<UnitOption> all) {
  std::sort(all.begin(), all.end(),
            [](const UnitOption& a, const UnitOption& b) { return std::tie(a.nanos, a.saved, a.peak) < std::tie(b.nanos, b.saved, b.peak); });
  std::vector<UnitOption> left;
  for (UnitOption& option : all) {
    if (std::none_of(left.begin(), left.end(), [&](const UnitOption& other) { return betters(other, option); })) left.push_back(std::move(option));
  }
  return left;
}

std::vector<UnitOption> every_set(UnitScale& scale, const std::vector<std::size_t>& steps) {
  std::vector<UnitOption> all;
  for (std::size_t set = 0; set < std::size_t{1} << steps.size(); ++set) {
    std::vector<bool> kept(scale.tape().steps.size(), false);
    for (std::size_t i = 0; i < steps.size(); ++i) kept[steps[i]] = (set >> i & 1U) != 0;
    all.push_back(scale.weigh(kept));
  }
  return all;
}

std::vector<UnitOption> one_after_the_other(UnitScale& scale, std::vector<std::size_t> steps) {
  std::vector<UnitOption> all{scale.weigh(std::vector<bool>(scale.tape().steps.size(), false))};
  while (!steps.empty()) {
    std::size_t best = 0;
    UnitOption chosen;
    double best_gain = -1;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      std::vector<bool> kept = all.back().kept;
      kept[steps[i]] = true;
      UnitOption option = scale.weigh(kept);
      const double bytes = std::max(1.0, static_cast<double>(option.saved) - static_cast<double>(all.back().saved));
      const double gain = (all.back().nanos - option.nanos) / bytes;
      if (gain <= best_gain) continue;
      best_gain = gain;
      best = i;
      chosen = std::move(option);
    }
    all.push_back(std::move(chosen));
    steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(best));
  }
  return all;
}

/// What makes two units alike to the scale: operations, widths, shapes, representations.
std::string likeness(const UnitDescription& unit, const UnitLayout& layout) {
  std::string key;
  const auto add = [&](std::int64_t number) { key += std::to_string(number) + ","; };
  for (const TapeValue& v : unit.tape.values) add(v.fp32 ? -v.width : v.width);
  for (const TapeStep& s : unit.tape.steps) {
    add(static_cast<std::int64_t>(s.type));
    for (const ValueIndex v : s.in) add(v);
    for (const ValueIndex v : s.out) add(v);
    for (const std::int64_t number : {std::int64_t{s.parameter}, s.heads, s.kv_heads, s.head_dim}) add(number);
  }
  for (std::size_t p = 0; p < unit.parameters.size(); ++p) {
    for (const std::int64_t number : {unit.parameters[p].rows, unit.parameters[p].cols, std::int64_t{layout.slots[p].fp8}}) add(number);
    add(static_cast<std::int64_t>(layout.slots[p].stored));
  }
  return key;
}

/// The first units as one of their ways.
struct PartialPlan {
  std::size_t saved = 0;
  double nanos = 0;
  std::uint32_t before = 0, option = 0;  ///< place among the plans of one unit less; option of the last unit
};

/// Those that no other betters, by rising saved bytes and falling time; thinned out evenly where they are too many.
void keep_the_best(std::vector<PartialPlan>& plans) {
  std::sort(plans.begin(), plans.end(), [](const PartialPlan& a, const PartialPlan& b) { return std::tie(a.saved, a.nanos) < std::tie(b.saved, b.nanos); });
  std::vector<PartialPlan> left;
  for (const PartialPlan& plan : plans) {
    if (left.empty() || plan.nanos < left.back().nanos) left.push_back(plan);
  }
  if (left.size() <= followed_plans) {
    plans = std::move(left);
    return;
  }
  plans.clear();
  for (std::size_t i = 0; i < followed_plans; ++i) plans.push_back(left[i * (left.size() - 1) / (followed_plans - 1)]);
}

}  // namespace

std::vector<UnitOption> options_of_unit(const ModelDescription& model, const WeightLayout& layout, const TapeSizes& sizes, std::size_t u) {
  UnitScale scale(model, layout, sizes, u);
  if (!is_block(scale.tape())) return {scale.weigh(std::vector<bool>(scale.tape().steps.size(), true))};
  const std::vector<std::size_t> steps = steps_that_matter(scale.tape());
  return worth_a_thought(steps.size() <= exact_steps ? every_set(scale, steps) : one_after_the_other(scale, steps));
}

std::optional<KeptSteps> fastest_within(const std::vector<std::vector<UnitOption>>& options, std::size_t limit) {
  std::vector<std::vector<PartialPlan>> by_unit{{PartialPlan{}}};
  for (const std::vector<UnitOption>& of_unit : options) {
    std::vector<PartialPlan> longer;
    for (std::uint32_t before = 0; before < by_unit.back().size(); ++before) {
      const PartialPlan& plan = by_unit.back()[before];
      for (std::uint32_t i = 0; i < of_unit.size(); ++i) {
        if (plan.saved + of_unit[i].peak <= limit) longer.push_back({plan.saved + of_unit[i].saved, plan.nanos + of_unit[i].nanos, before, i});
      }
    }
    if (longer.empty()) return std::nullopt;
    keep_the_best(longer);
    by_unit.push_back(std::move(longer));
  }
  KeptSteps kept(options.size());
  std::uint32_t at = static_cast<std::uint32_t>(by_unit.back().size()) - 1;  // the last is the fastest
  for (std::size_t u = options.size(); u-- > 0;) {
    const PartialPlan& plan = by_unit[u + 1][at];
    kept[u] = options[u][plan.option].kept;
    at = plan.before;
  }
  return kept;
}

RecomputeSearch::RecomputeSearch(const ModelDescription& model, const WeightLayout& layout, const TapeSizes& sizes)
    : model_(model),
      layout_(layout),
      sizes_(sizes),
      all_(keep_by_rule(model, Recompute::none)),
      inputs_(keep_by_rule(model, Recompute::full)),
      most_(arena_of(all_)),
      least_(arena_of(inputs_)) {}

std::size_t RecomputeSearch::arena_of(const KeptSteps& kept) const { return plan_tapes(model_, layout_, sizes_, {.kept = kept}).arena_bytes; }

std::size_t RecomputeSearch::bytes_of_budget(double budget) const noexcept {
  return static_cast<std::size_t>(static_cast<double>(least_) + budget * (static_cast<double>(most_) - static_cast<double>(least_)));
}

KeptSteps RecomputeSearch::within(std::size_t arena_bytes) const {
  if (most_ <= arena_bytes) return all_;
  if (options_.empty()) {
    std::map<std::string, std::vector<UnitOption>> known;
    for (std::size_t u = 0; u < model_.units.size(); ++u) {
      std::vector<UnitOption>& of_unit = known[likeness(model_.units[u], layout_.units[u])];
      if (of_unit.empty()) of_unit = options_of_unit(model_, layout_, sizes_, u);
      options_.push_back(of_unit);
    }
  }
  // An arena is larger than what lives in it at once by what first fit loses: where that does not fit, so much less may live.
  for (std::size_t limit = arena_bytes; const auto kept = fastest_within(options_, limit);) {
    const std::size_t arena = arena_of(*kept);
    if (arena <= arena_bytes) return *kept;
    if (arena - arena_bytes >= limit) break;
    limit -= arena - arena_bytes;
  }
  if (least_ <= arena_bytes) return inputs_;
  throw std::invalid_argument("activation checkpointing: activations and working memory of " + model_.name + " may take " + std::to_string(arena_bytes) +
                              " bytes, but take " + std::to_string(least_) + " with every block computed again, and " + std::to_string(most_) +
                              " with none: raise the limit, or lower training.local_batch_size or seq_len");
}

KeptSteps choose_kept(const ModelDescription& model, const WeightLayout& layout, const TapeSizes& sizes, const RecomputePolicy& policy) {
  if (policy.mode != Recompute::budget && policy.mode != Recompute::automatic) return keep_by_rule(model, policy);
  if (policy.mode == Recompute::automatic && policy.arena_limit == 0) return keep_by_rule(model, Recompute::none);
  const RecomputeSearch search(model, layout, sizes);
  return search.within(policy.mode == Recompute::budget ? search.bytes_of_budget(policy.memory_budget) : policy.arena_limit);
}

}  // namespace troupe
