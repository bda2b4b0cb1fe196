#include "tools/launcher/job_checkpoints.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <stdexcept>

#include "src/base/clock.hpp"
#include "src/checkpoint/export_hugging_face.hpp"
#include "src/data/open_documents.hpp"
#include "src/metrics/progress_bar.hpp"
#include "tools/launcher/foreign_start.hpp"

namespace troupe {
namespace {

std::string tokenizer_text(std::uint64_t hash) { return hash == 0 ? "bytes as tokens" : fmt::format("the tokenizer of hash {:016x}", hash); }

}  // namespace

JobCheckpoints::JobCheckpoints(const JobConfig& config, const std::filesystem::path& run_folder)
    : config_(config), storage_(make_posix_storage()), store_(run_folder / config.checkpoint.folder, *storage_) {}

Result<void> JobCheckpoints::look(std::vector<std::string>& warnings) {
  if (!config_.checkpoint.enable) return {};
  if (config_.checkpoint.last_save_in_hf && !config_.checkpoint.last_save_model_only)
    return Error{"checkpoint.last_save_in_hf = true writes weights alone: set checkpoint.last_save_model_only = true"};
  const auto tokenizer = open_tokenizer(config_.model.hf_assets_path, config_.data.tokenizer.get());
  if (!tokenizer) return tokenizer.error();
  tokenizer_ = hash_of(*tokenizer);
  auto cleaned = store_.clean();
  if (!cleaned) return cleaned.error();
  for (const std::string& line : *cleaned) warnings.push_back(line);
  auto found = choose_watched(warnings);
  if (!found) return found.error();
  found_ = std::move(found.value());
  if (!found_) return {};
  const RunPosition& position = found_->checkpoint.manifest.position;
  if (position.tokenizer != tokenizer_ && found_->own)
    return Error{
        fmt::format("{} was trained with {}, but model.hf_assets_path now names {}: ids mean something else; name the old tokenizer, or begin a new run",
                    found_->checkpoint.folder.string(), tokenizer_text(position.tokenizer), tokenizer_text(tokenizer_))};
  if (!found_->own) {
    if (position.tokenizer != tokenizer_ && !found_->foreign)
      warnings.push_back(fmt::format("{} was trained with {}, this run uses {}", found_->checkpoint.folder.string(), tokenizer_text(position.tokenizer),
                                     tokenizer_text(tokenizer_)));
    warnings.push_back(fmt::format("this run begins from {}", found_->checkpoint.folder.string()));
    return found_->foreign ? check_foreign_start(config_, *found_, *storage_, warnings) : Result<void>{};
  }
  for (const std::string& change : config_.changes_since(position.config))
    warnings.push_back(fmt::format("the configuration has changed since the checkpoint of step {}: {}", position.step.value(), change));
  return {};
}

Result<std::optional<RestorePoint>> JobCheckpoints::choose_watched(std::vector<std::string>& warnings) {
  const auto clock = make_system_clock();
  const auto write = [](std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); };
  std::optional<ProgressBar> bar;
  Step shown;
  store_.watch([&](Step step, std::uint64_t done, std::uint64_t total) {
    if (!bar || step != shown)
      bar.emplace(fmt::format("checking the checkpoint of step {}", step.value()), "MiB", 1048576, ::isatty(STDERR_FILENO) == 1, *clock, write);
    shown = step;
    bar->update(done, total);
  });
  auto found = choose_restore_point(config_.checkpoint, store_, *storage_, warnings);
  store_.watch({});
  return found;
}

void JobCheckpoints::clear_branch(Log& log) {
  if (branch_cleared_) return;
  const auto names = store_.set_aside_after(restore_step());
  if (!names) throw std::runtime_error("checkpoints newer than the one resumed from could not be set aside: " + names.error().message);
  for (const std::string& name : *names)
    log.warning(fmt::format("{} was renamed to {}: it is newer than step {}, from which this run went on; remove it by hand when it is not wanted any more",
                            name.substr(0, name.find('.')), name, restore_step().value()));
  branch_cleared_ = true;
}

void JobCheckpoints::set_aside(Step after, Step until, Log& log) {
  const auto names = store_.set_aside_after(after, until);
  if (!names) throw std::runtime_error(names.error().message);
  for (const std::string& name : *names)
    log.warning(fmt::format("{} was renamed to {}: training was rolled back over it; remove it by hand when it is not wanted any more",
                            name.substr(0, name.find('.')), name));
}

void JobCheckpoints::seal(const CheckpointParts& parts, const JobConfig& config, std::uint32_t ranks, std::uint64_t data_row, Log& log) {
  clear_branch(log);
  RunPosition position;
  position.step = parts.step;
  position.epoch = parts.epoch;
  position.world = ranks;
  position.config_hash = config.hash();
  position.config = config.to_toml();
  position.data_row = data_row;
  position.tokens = parts.total_tokens;
  position.model_only = config.checkpoint.last_save_model_only && parts.step.value() == static_cast<std::uint64_t>(config.training.steps);
  position.tokenizer = tokenizer_;
  std::vector<SavedShard> shards;
  shards.reserve(parts.shards.size());
  for (const ShardFact& fact : parts.shards) shards.push_back({fact.file, fact.bytes, fact.hash});
  if (auto sealed = store_.seal(position, shards); !sealed) {
    (void)store_.give_up(parts.step, parts.epoch);
    throw std::runtime_error(sealed.error().message);
  }
  std::int64_t keep = config.checkpoint.keep_latest_k;
  if (const SnapshotPolicy policy = config.snapshots(); keep > 0 && policy.rollback_steps > 0)  // a rollback may lead to any of these
    keep = std::max(keep, std::int64_t{policy.rollback_steps + policy.keep_every} / config.checkpoint.interval + 2);
  (void)store_.purge(keep, parts.step);  // an old one that cannot be deleted is tried again after the next
  if (config_.checkpoint.last_save_in_hf && position.model_only) export_weights(parts.step, log);
}

void JobCheckpoints::export_weights(Step step, Log& log) {
  const std::filesystem::path folder = store_.sealed_folder(step), out = folder.string() + "-hf";
  if (const auto written = write_export(step, out); !written)
    return log.warning(
        fmt::format("checkpoint.last_save_in_hf: {} is sealed, but its weights for Hugging Face were not written: {}; when that is mended, "
                    "`troupe convert {} --to hf {}` writes them",
                    folder.string(), written.error().message, folder.string(), out.string()));
  log.info(fmt::format("weights for Hugging Face in {}", out.string()));
}

Result<void> JobCheckpoints::write_export(Step step, const std::filesystem::path& out) {
  if (auto removed = storage_->remove(out); !removed) return removed;  // of an earlier run of this folder to the same step
  const auto found = store_.open(step);
  if (!found) return found.error();
  const auto plan = plan_export(config_, *storage_);
  if (!plan) return plan.error();
  return export_hugging_face(*found, *storage_, *plan, out);
}

}  // namespace troupe
