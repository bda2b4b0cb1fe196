#include "tools/launcher/job_sinks.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <limits>

#include "src/metrics/tensorboard_file.hpp"
#include "src/metrics/wandb_process.hpp"

namespace troupe {
namespace {

double seconds_of(Nanos time) { return std::chrono::duration<double>(time).count(); }
double wall_time() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

StepMetrics metrics_of(const StepRecord& record, const RankReport& report) {
  StepMetrics metrics;
  metrics.step = record.step;
  metrics.epoch = record.epoch;
  metrics.outcome = report.outcome;
  metrics.loss = report.loss;
  metrics.max_loss = report.own_loss;
  metrics.grad_norm = report.grad_norm;
  metrics.learning_rate = report.learning_rate;
  metrics.step_tokens = report.tokens;
  metrics.total_tokens = record.total_tokens;
  metrics.ranks = record.ranks;
  metrics.step_seconds = seconds_of(report.duration);
  metrics.wait_batch_seconds = seconds_of(report.wait_batch);
  metrics.wait_weights_seconds = seconds_of(report.wait_weights);
  metrics.wait_gradients_seconds = seconds_of(report.wait_gradients);
  metrics.wait_snapshots_seconds = seconds_of(report.wait_snapshots);
  metrics.digest = report.digest;
  metrics.arena_peak_bytes = report.arena_peak_bytes;
  metrics.bytes_gathered = report.bytes_gathered;
  metrics.bytes_reduced = report.bytes_reduced;
  metrics.non_finite = report.non_finite;
  metrics.float8_saturated = report.float8_saturated;
  metrics.float8_non_finite = report.float8_non_finite;
  metrics.validation_loss = report.evaluation_loss;
  metrics.validation_tokens = report.evaluation_tokens;
  metrics.validation_seconds = seconds_of(report.evaluation_time);
  for (const SourceLoss& sum : report.sources)
    metrics.sources.push_back(
        {.loss = sum.tokens > 0 ? sum.loss / static_cast<double>(sum.tokens) : std::numeric_limits<double>::quiet_NaN(), .tokens = sum.tokens});
  return metrics;
}

/// A rank's own numbers: its loss, its tokens, its waits.
StepMetrics metrics_of_rank(const StepRecord& record, const RankReport& report) {
  StepMetrics metrics = metrics_of(record, report);
  metrics.step_tokens = report.local_tokens;
  metrics.ranks = 1;
  return metrics;
}

}  // namespace

StepMetrics metrics_of(const StepRecord& record) { return metrics_of(record, record.common); }

Result<std::unique_ptr<JobSinks>> JobSinks::open(const Options& options, Log& log) {
  std::unique_ptr<JobSinks> sinks{new JobSinks(options, log)};
  if (options.metrics.enable_tensorboard) {
    if (auto opened = sinks->open_tensorboard(options); !opened) return opened.error();
  }
  if (options.metrics.enable_wandb) {
    const char* python = std::getenv("TROUPE_PYTHON");
    auto process =
        WandbProcess::start({.python = python != nullptr && *python != '\0' ? python : "python3", .run_folder = options.run_folder, .config = options.config});
    if (!process) return process.error();
    log.info("reporting to Weights & Biases; its client's words are in " + (options.run_folder / "logs/wandb.log").string());
    sinks->sinks_.push_back(std::move(*process));
  }
  return sinks;
}

Result<void> JobSinks::open_tensorboard(const Options& options) {
  const auto folder = tensorboard_folder(options.run_folder / options.metrics.save_tb_folder, options.restored > Step{0}, wall_time());
  auto file = TensorBoardFile::open(folder, options.restored.next(), wall_time());
  if (!file) return file.error();
  log_.info("TensorBoard event files in " + folder.string());
  sinks_.push_back(std::move(*file));
  for (std::uint32_t rank = 0; options.metrics.save_for_all_ranks && rank < options.world_size; ++rank) {
    auto own = TensorBoardFile::open(folder / fmt::format("rank_{}", rank), options.restored.next(), wall_time());
    if (!own) return own.error();
    ranks_.emplace(Rank{rank}, OfRank{LogWindow(options.metrics.log_freq), std::move(*own)});
  }
  return {};
}

void JobSinks::step(const StepRecord& record, const LoggedMetrics* logged) {
  for (auto& [rank, own] : ranks_) {
    const auto report = record.each.find(rank);
    if (report == record.each.end()) continue;
    if (const auto due = own.window.add(metrics_of_rank(record, report->second))) tell(*own.sink, record.step, *due);
  }
  if (record.common.evaluation_tokens > 0) {
    const auto validation = validation_scalars(metrics_of(record), rates_);
    for (const auto& sink : sinks_) warn_once(sink->write(record.step, wall_time(), validation));
  }
  if (logged == nullptr) return;
  for (const auto& sink : sinks_) tell(*sink, record.step, *logged);
}

void JobSinks::tell(MetricSink& sink, Step step, const LoggedMetrics& logged) { warn_once(sink.write(step, wall_time(), scalars_of(logged, rates_))); }

void JobSinks::close() {
  for (const auto& sink : sinks_) warn_once(sink->close());
  for (const auto& [rank, own] : ranks_) warn_once(own.sink->close());
}

void JobSinks::warn_once(const Result<void>& written) {
  if (!written && !warned_) log_.warning(written.error().message);
  warned_ = warned_ || !written;
}

}  // namespace troupe
