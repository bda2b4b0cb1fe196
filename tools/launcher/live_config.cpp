#include "tools/launcher/live_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace troupe {
namespace {

/// What the launcher alone decides, step by step; a rank is told its consequence with the permission for each step.
constexpr std::array<std::string_view, 7> changeable{"optimizer.lr",
                                                     "lr_scheduler.warmup_steps",
                                                     "lr_scheduler.decay_ratio",
                                                     "lr_scheduler.decay_type",
                                                     "lr_scheduler.min_lr_factor",
                                                     "lr_scheduler.total_steps",
                                                     "checkpoint.interval"};

std::string listed() {
  std::string all;
  for (const std::string_view key : changeable) all += (all.empty() ? "" : ", ") + std::string(key);
  return all;
}

Result<std::string> refusal(std::string_view written) {
  JobConfig none;
  Schema schema;
  none.describe_to(schema);
  const Key* const key = schema.find(written);
  if (key == nullptr) {
    const std::string near = schema.nearest_key(written);
    return Error{fmt::format("{}: no such key{}", written, near.empty() ? "" : "; did you mean " + near + "?")};
  }
  if (std::ranges::find(changeable, key->name) != changeable.end()) return key->name;
  if (key->key_class == KeyClass::frozen) return Error{fmt::format("{} is frozen: it belongs to the run and cannot be changed in it", key->name)};
  return Error{fmt::format("{} ({}) cannot be changed in a live run by this version; stop it (SIGTERM saves) and go on with the new value. Live now: {}",
                           key->name, name_of(key->key_class), listed())};
}

}  // namespace

LiveConfig::Values LiveConfig::values_of(JobConfig config) {
  const FittedSchedule fitted = fit_schedule(config.lr_scheduler, static_cast<std::uint64_t>(config.training.steps));
  return {std::move(config), fitted.schedule};
}

LiveConfig::LiveConfig(const JobConfig& config, Step schedule_before) : schedule_before_(schedule_before) { from_.emplace(Step{0}, values_of(config)); }

const LiveConfig::Values& LiveConfig::at(Step step) const { return std::prev(from_.upper_bound(step))->second; }

Result<JobConfig> LiveConfig::changed(const JobConfig& config, const std::vector<std::string>& changes) const {
  std::vector<std::string> overrides;
  for (const std::string& change : changes) {
    const auto equals = change.find('=');
    if (equals == std::string::npos || equals == 0) return Error{fmt::format("'{}': a change is written KEY=VALUE", change)};
    if (auto key = refusal(std::string_view(change).substr(0, equals)); !key) return key.error();
    overrides.push_back("--" + change);
  }
  if (overrides.empty()) return Error{"no change was given; write KEY=VALUE"};
  return JobConfig::parse(config.to_toml(), "the run's configuration", overrides);
}

Result<void> LiveConfig::plan(const std::vector<std::string>& planned) {
  for (const std::string& text : planned) {
    const auto wrong = [&](const std::string& why) { return Error{fmt::format("live.changes: '{}': {}", text, why)}; };
    std::uint64_t step = 0;
    const auto blank = text.find(' ');
    const auto [end, problem] = std::from_chars(text.data() + std::min<std::size_t>(5, text.size()), text.data() + std::min(blank, text.size()), step);
    if (!text.starts_with("step=") || blank == std::string::npos || problem != std::errc{} || end != text.data() + blank || step == 0)
      return wrong("a planned change is written 'step=7 optimizer.lr=1e-4', steps count from 1");
    std::vector<std::string> changes;
    for (std::size_t from = blank + 1; from < text.size();) {
      const auto next = std::min(text.find(' ', from), text.size());
      if (next > from) changes.push_back(text.substr(from, next - from));
      from = next + 1;
    }
    if (auto done = change(changes, Step{step}); !done) return wrong(done.error().message);
  }
  return {};
}

Result<void> LiveConfig::check(const std::vector<std::string>& changes) const {
  const std::lock_guard lock(mutex_);
  if (auto config = changed(std::prev(from_.end())->second.config, changes); !config) return config.error();
  return {};
}

Result<void> LiveConfig::change(const std::vector<std::string>& changes, Step from) {
  const std::lock_guard lock(mutex_);
  auto config = changed(at(from).config, changes);
  if (!config) return config.error();
  std::map<Step, Values> later;
  for (auto entry = from_.upper_bound(from); entry != from_.end(); ++entry) {  // it holds from its step on, also over what was planned for later
    auto again = changed(entry->second.config, changes);
    if (!again) return again.error();
    later.insert_or_assign(entry->first, values_of(std::move(again.value())));
  }
  from_.insert_or_assign(from, values_of(std::move(config.value())));
  for (auto& [step, values] : later) from_.insert_or_assign(step, std::move(values));
  return {};
}

double LiveConfig::learning_rate(Step step) const {
  const std::lock_guard lock(mutex_);
  const Values& values = at(step);
  return values.config.optimizer.lr * values.schedule.factor(Step{step.value() - schedule_before_.value()});
}

bool LiveConfig::snapshot_due(Step step, Step last) const {
  const std::lock_guard lock(mutex_);
  const CheckpointSettings& checkpoint = at(step).config.checkpoint;
  if (!checkpoint.saves()) return false;
  return step == last || step.value() % static_cast<std::uint64_t>(checkpoint.interval) == 0 || (step == Step{1} && checkpoint.enable_first_step_checkpoint);
}

}  // namespace troupe
