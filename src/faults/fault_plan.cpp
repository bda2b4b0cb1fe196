#include "src/faults/fault_plan.hpp"

#include <utility>

namespace troupe {
namespace {

/// SplitMix64's output function: every bit of the input changes half of the output's.
std::uint64_t scrambled(std::uint64_t value) noexcept {
  value += 0x9e3779b97f4a7c15U;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31);
}

std::uint64_t hash_of(std::uint64_t seed, std::size_t rule, std::string_view name, const Where& where) noexcept {
  std::uint64_t hash = scrambled(seed ^ scrambled(rule));
  for (const char letter : name) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3U;
  for (const std::uint64_t part : {where.epoch.value(), where.step.value(), std::uint64_t{where.micro.value()}, std::uint64_t{where.unit.value()}})
    hash = scrambled(hash ^ part);
  return hash;
}

/// In [0, 1).
double uniform(std::uint64_t random) noexcept { return static_cast<double>(random >> 11) * 0x1p-53; }

}  // namespace

FaultPlan::FaultPlan(Rank rank, std::uint64_t seed, std::vector<FaultRule> rules, std::vector<std::uint64_t> fired)
    : rank_(rank), seed_(seed), any_(!rules.empty()), rules_(std::move(rules)) {
  counts_.fired = std::move(fired);
  counts_.fired.resize(rules_.size());
}

FaultPlan::FaultPlan(std::shared_ptr<FaultLedger> ledger, Rank rank, std::uint64_t seed, std::vector<FaultRule> rules)
    : FaultPlan(rank, seed, std::move(rules), ledger ? ledger->fired() : std::vector<std::uint64_t>{}) {
  ledger_ = std::move(ledger);
  grows_ = true;
}

void FaultPlan::add(FaultRule rule) {
  const std::lock_guard lock(mutex_);
  rules_.push_back(std::move(rule));
  if (ledger_) {
    const auto fired = ledger_->fired();
    for (std::size_t i = counts_.fired.size(); i < rules_.size(); ++i) counts_.fired.push_back(i < fired.size() ? fired[i] : 0);
  }
  counts_.fired.resize(rules_.size());
  any_ = true;
}

std::vector<FaultRule> FaultPlan::rules() const {
  const std::lock_guard lock(mutex_);
  return rules_;
}

std::vector<std::uint64_t> FaultPlan::fired() const {
  const std::lock_guard lock(mutex_);
  return counts_.fired;
}

bool FaultPlan::matches(const FaultRule& rule, FaultSite site, std::string_view name, const Where& where) const {
  const bool named = rule.kind.empty() || (name.starts_with(rule.kind) && (name.size() == rule.kind.size() || name[rule.kind.size()] == ' '));
  return rule.site == site && named && rule.rank.value_or(rank_) == rank_ && rule.epoch.value_or(where.epoch) == where.epoch &&
         rule.step.value_or(where.step) == where.step && rule.micro.value_or(where.micro) == where.micro && rule.unit.value_or(where.unit) == where.unit;
}

Fault FaultPlan::search(FaultSite site, std::string_view name, const Where& where) {
  const std::lock_guard lock(mutex_);
  for (std::size_t index = 0; index < rules_.size(); ++index) {
    const FaultRule& rule = rules_[index];
    if (!matches(rule, site, name, where)) continue;
    if (rule.times != 0 && counts_.fired[index] >= rule.times) continue;
    if (where.step > counts_.step) {
      counts_.step = where.step;
      counts_.asked.clear();
    }
    const std::uint64_t place = hash_of(seed_ ^ scrambled(rank_.value()), index, name, where);
    const std::uint64_t random = scrambled(place ^ scrambled(counts_.asked[place]++));
    if (uniform(random) >= rule.probability) continue;
    ++counts_.fired[index];
    if (ledger_) ledger_->note({index, where, std::string(name)});
    return {rule.action, rule.duration, index, scrambled(random)};
  }
  return {};
}

}  // namespace troupe
