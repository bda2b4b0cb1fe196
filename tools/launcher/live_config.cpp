#include "tools/launcher/live_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>

#include "tools/launcher/live_keys.hpp"

namespace troupe {
namespace {

std::string_view key_of(std::string_view change) { return change.substr(0, change.find('=')); }

/// Replaces what was said of the same key before.
void put(std::vector<std::string>& changes, const std::string& change) {
  const std::string name = canonical_key(key_of(change));
  std::erase_if(changes, [&](const std::string& other) { return canonical_key(key_of(other)) == name; });
  changes.push_back(change);
}

}  // namespace

MeshDegrees fitted_mesh(const JobConfig& config, std::uint32_t ranks) {
  if (const auto mesh = config.mesh(ranks)) return *mesh;
  std::int64_t replicate = std::clamp<std::int64_t>(config.parallelism.data_parallel_replicate_degree, 1, ranks);
  while (ranks % replicate != 0) --replicate;
  return {replicate, ranks / replicate};
}

LiveConfig::LiveConfig(const JobConfig& config, Start start) : base_(config), start_(start), from_(*values_of({})) {}

const LiveConfig::Values& LiveConfig::at(Step step) const { return std::prev(from_.upper_bound(step))->second; }

std::map<std::string, std::string> LiveConfig::values() const {
  const std::lock_guard lock(mutex_);
  JobConfig newest = from_.rbegin()->second.config;
  Schema schema;
  newest.describe_to(schema);
  std::map<std::string, std::string> values;
  for (const Key& key : schema.keys()) {
    if (const auto kind = live_kind(key.name); kind && *kind == LiveKind::step) values.emplace(key.name, key.toml());
  }
  return values;
}

Result<JobConfig> LiveConfig::changed(const JobConfig& config, const std::vector<std::string>& changes) const {
  std::vector<std::string> overrides;
  for (const std::string& change : changes) {
    const auto equals = change.find('=');
    if (equals == std::string::npos || equals == 0) return Error{fmt::format("'{}': a change is written KEY=VALUE", change)};
    if (auto kind = live_kind(std::string_view(change).substr(0, equals)); !kind) return kind.error();
    overrides.push_back("--" + change);
  }
  if (overrides.empty()) return Error{"no change was given; write KEY=VALUE"};
  auto merged = JobConfig::parse(config.to_toml(), "the run's configuration", overrides);
  if (!merged) return merged.error();
  if (auto built = merged->can_run(); !built && base_.can_run()) return built.error();
  merged->model.extensions = base_.model.extensions;
  merged->data.tokenizer = base_.data.tokenizer;
  if (merged->training.guard.rolls_back() && !base_.training.guard.rolls_back())
    return Error{"training.guard: rollbacks cannot be turned on in a live run: the snapshots that they need are held from its start"};
  const std::int64_t limit = std::max({base_.comm.init_timeout_seconds, base_.comm.train_timeout_seconds, longest_live_timeout_seconds});
  if (merged->comm.train_timeout_seconds > limit)
    return Error{fmt::format("comm.train_timeout_seconds = {}: a live run takes {} at most", merged->comm.train_timeout_seconds, limit)};
  return merged;
}

Result<std::map<Step, LiveConfig::Values>> LiveConfig::values_of(const std::map<Step, std::vector<std::string>>& agreed) const {
  const auto fitted = [](const JobConfig& config) { return fit_schedule(config.lr_scheduler, static_cast<std::uint64_t>(config.training.steps)).schedule; };
  std::map<Step, Values> all;
  Values values{base_, fitted(base_), {}};
  all.emplace(Step{0}, values);
  for (const auto& [step, changes] : agreed) {
    auto config = changed(values.config, changes);
    if (!config) return config.error();
    values.schedule = fitted(*config);
    values.config = std::move(*config);
    values.new_epoch = takes_epoch(changes);
    for (const std::string& change : changes)
      if (of_epoch(change)) put(values.of_epochs, change);
    all.insert_or_assign(step, values);
  }
  return all;
}

Result<void> LiveConfig::plan(const std::vector<std::string>& planned) {
  for (const std::string& text : planned) {
    const auto wrong = [&](const std::string& why) { return Error{fmt::format("live.changes: '{}': {}", text, why)}; };
    std::uint64_t step = 0;
    std::vector<std::string> changes;
    for (std::size_t from = 0; from < text.size();) {
      const auto next = std::min(text.find(' ', from), text.size());
      const std::string word = text.substr(from, next - from);
      from = next + 1;
      if (word.empty()) continue;
      if (!word.starts_with("step=")) {
        changes.push_back(word);
        continue;
      }
      const auto [end, problem] = std::from_chars(word.data() + 5, word.data() + word.size(), step);
      if (problem != std::errc{} || end != word.data() + word.size()) step = 0;
    }
    if (step == 0) return wrong("a planned change is written 'step=7 optimizer.lr=1e-4', steps count from 1");
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
  auto agreed = agreed_;
  for (const std::string& change : changes) {
    put(agreed[from], change);
    // It holds from its step on, also over what was planned for later.
    for (auto later = agreed.upper_bound(from); later != agreed.end(); ++later)
      std::erase_if(later->second, [&](const std::string& other) { return canonical_key(key_of(other)) == canonical_key(key_of(change)); });
  }
  std::erase_if(agreed, [from](const auto& entry) { return entry.first != from && entry.second.empty(); });
  auto values = values_of(agreed);
  if (!values) return values.error();
  if (const std::int64_t last = values->at(from).config.training.steps; static_cast<std::uint64_t>(last) < from.value())
    return Error{fmt::format("training.steps = {}: step {} is the first that can change, so the run ends with it at the earliest", last, from.value())};
  agreed_ = std::move(agreed);
  from_ = std::move(*values);
  return {};
}

void LiveConfig::withdraw(Step from) {
  const std::lock_guard lock(mutex_);
  auto agreed = agreed_;
  const auto found = agreed.find(from);
  if (found == agreed.end()) return;
  std::erase_if(found->second, [this](const std::string& change) { return of_epoch(change); });
  if (found->second.empty()) agreed.erase(found);
  if (auto values = values_of(agreed)) {
    agreed_ = std::move(agreed);
    from_ = std::move(*values);
  }
}

double LiveConfig::learning_rate(Step step) const {
  const std::lock_guard lock(mutex_);
  const Values& values = at(step);
  return values.config.optimizer.lr * values.schedule.factor(Step{step.value() - start_.schedule_before.value()});
}

Step LiveConfig::last_step(Step step) const {
  const std::lock_guard lock(mutex_);
  return Step{static_cast<std::uint64_t>(at(step).config.training.steps)};
}

bool LiveConfig::snapshot_due(Step step) const {
  const std::lock_guard lock(mutex_);
  const CheckpointSettings& checkpoint = at(step).config.checkpoint;
  if (!checkpoint.saves()) return false;
  return step.value() == static_cast<std::uint64_t>(at(step).config.training.steps) || step.value() % static_cast<std::uint64_t>(checkpoint.interval) == 0 ||
         (step == Step{1} && checkpoint.enable_first_step_checkpoint);
}

Nanos LiveConfig::train_timeout(Step step) const {
  const std::lock_guard lock(mutex_);
  return std::chrono::seconds{at(step).config.comm.train_timeout_seconds};
}

std::int64_t LiveConfig::log_freq(Step step) const {
  const std::lock_guard lock(mutex_);
  return at(step).config.metrics.log_freq;
}

bool LiveConfig::evaluation_due(Step step) const {
  const std::lock_guard lock(mutex_);
  const ValidationSettings& validation = at(step).config.validation;
  return validation.enable && (step == Step{1} || step.value() % static_cast<std::uint64_t>(validation.freq) == 0);
}

GuardSettings LiveConfig::guard(Step step) const {
  const std::lock_guard lock(mutex_);
  return at(step).config.training.guard;
}

std::uint64_t LiveConfig::data_row(Step step) const {
  const std::lock_guard lock(mutex_);
  std::uint64_t row = start_.row;
  for (auto entry = from_.begin(); entry != from_.end(); ++entry) {
    const std::uint64_t first = std::max(entry->first.value(), start_.step.value() + 1);
    const std::uint64_t end = std::next(entry) == from_.end() ? step.value() + 1 : std::min(step.value() + 1, std::next(entry)->first.value());
    if (end > first) row += (end - first) * static_cast<std::uint64_t>(entry->second.config.global_rows(start_.ranks));
  }
  return row;
}

bool LiveConfig::of_epoch(std::string_view change) const {
  const auto kind = live_kind(key_of(change));
  if (!kind) return false;
  // Ranks know which checkpoint is the last where it alone is without the optimizer's state.
  const bool told = base_.checkpoint.saves() && base_.checkpoint.last_save_model_only && canonical_key(key_of(change)) == "training.steps";
  return told || *kind == LiveKind::epoch;
}

bool LiveConfig::takes_epoch(const std::vector<std::string>& changes) const {
  return std::ranges::any_of(changes, [this](const std::string& change) { return of_epoch(change); });
}

std::optional<Step> LiveConfig::next_epoch(Step after) const {
  const std::lock_guard lock(mutex_);
  for (auto entry = from_.upper_bound(after); entry != from_.end(); ++entry)
    if (entry->second.new_epoch) return entry->first;
  return std::nullopt;
}

Result<std::vector<std::string>> LiveConfig::changes_of(const Values& values, std::uint32_t ranks) const {
  std::vector<std::string> changes = values.of_epochs;
  if (ranks != start_.ranks && values.config.training.global_batch_size < 0)
    put(changes, fmt::format("training.global_batch_size={}", values.config.global_rows(start_.ranks)));
  if (ranks != start_.ranks && !values.config.mesh(ranks)) {
    const MeshDegrees mesh = fitted_mesh(values.config, ranks);
    put(changes, fmt::format("parallelism.data_parallel_replicate_degree={}", mesh.replicate));
    put(changes, fmt::format("parallelism.data_parallel_shard_degree={}", mesh.shard));
  }
  return changes;
}

Result<JobConfig> LiveConfig::config_for(const Values& values, std::uint32_t ranks) const {
  auto changes = changes_of(values, ranks);
  if (!changes) return changes.error();
  for (std::string& change : *changes) change = "--" + change;
  auto config = JobConfig::parse(values.config.to_toml(), "the run's configuration", *changes);
  if (!config) return config.error();
  config->model.extensions = base_.model.extensions;
  config->data.tokenizer = base_.data.tokenizer;
  if (auto mesh = config->mesh(ranks); !mesh) return mesh.error();
  return config;
}

Result<std::vector<std::string>> LiveConfig::epoch_changes(Step first, std::uint32_t ranks) const {
  const std::lock_guard lock(mutex_);
  if (auto config = config_for(at(first), ranks); !config) return config.error();
  return changes_of(at(first), ranks);
}

Result<JobConfig> LiveConfig::epoch_config(Step first, std::uint32_t ranks) const {
  const std::lock_guard lock(mutex_);
  return config_for(at(first), ranks);
}

Result<JobConfig> LiveConfig::epoch_config_with(const std::vector<std::string>& changes, std::uint32_t ranks) const {
  const std::lock_guard lock(mutex_);
  Values values = std::prev(from_.end())->second;
  auto config = changed(values.config, changes);
  if (!config) return config.error();
  const bool mesh =
      std::ranges::any_of(changes, [](const std::string& change) { return canonical_key(key_of(change)).starts_with("parallelism.data_parallel_"); });
  if (auto asked = config->mesh(ranks); mesh && !asked) return asked.error();  // what is asked for by name is not fitted
  values.config = std::move(*config);
  for (const std::string& change : changes)
    if (of_epoch(change)) put(values.of_epochs, change);
  return config_for(values, ranks);
}

}  // namespace troupe
