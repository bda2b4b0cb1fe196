#include "tools/launcher/job_record.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/base/cut_text.hpp"

namespace troupe {
namespace {

using nlohmann::json;

json rank_or_null(Rank rank) { return rank == launcher_rank ? json() : json(rank.value()); }

}  // namespace

struct JobRecord::Line : json {
  using json::json;
};

Result<std::unique_ptr<JobRecord>> JobRecord::open(const JobRecordOptions& options, Log& log) {
  auto metrics = MetricsFile::open(options.run_folder / "metrics.jsonl", options.restored, options.rates);
  if (!metrics) return metrics.error();
  auto journal = LineFile::open(options.run_folder / "journal.jsonl");
  if (!journal) return journal.error();
  auto sinks = JobSinks::open({.run_folder = options.run_folder,
                               .world_size = options.world_size,
                               .restored = options.restored,
                               .metrics = options.metrics,
                               .rates = options.rates,
                               .config = options.config},
                              log);
  if (!sinks) return sinks.error();
  return std::unique_ptr<JobRecord>{new JobRecord(options, log, std::move(metrics.value()), std::move(journal.value()), std::move(sinks.value()))};
}

JobRecord::JobRecord(const JobRecordOptions& options, Log& log, MetricsFile metrics, LineFile journal, std::unique_ptr<JobSinks> sinks)
    : options_(options),
      log_(log),
      metrics_(std::move(metrics)),
      journal_(std::move(journal)),
      sinks_(std::move(sinks)),
      console_(options.metrics, options.rates, options.colour) {}

void JobRecord::write(const char* event, const Line& fields) {
  const auto now = std::chrono::system_clock::now();
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  if (options_.tracer != nullptr) {
    const Nanos at = std::chrono::steady_clock::now().time_since_epoch();
    options_.tracer->mark(launcher_rank, cut_text(fmt::format("{}: {}", event, fields.dump(-1, ' ', false, json::error_handler_t::replace)), 300), at);
  }
  json line{{"time", fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(std::chrono::system_clock::to_time_t(now)), milliseconds)}, {"event", event}};
  line.update(fields);
  warn_once(journal_.append(line.dump(-1, ' ', false, json::error_handler_t::replace)));
}

void JobRecord::warn_once(const Result<void>& written) {
  if (!written && !warned_) log_.warning(written.error().message);
  warned_ = !written;
}

void JobRecord::joined(const JoinedRank& rank, std::uint32_t so_far) {
  write("joined",
        {{"rank", rank.rank.value()}, {"pid", rank.pid}, {"host", rank.host}, {"restored", rank.restored.value()}, {"incarnation", rank.incarnation.value()}});
  if (so_far == options_.world_size && rank.incarnation == Incarnation{0}) log_.info(fmt::format("all {} ranks have joined", options_.world_size));
}

void JobRecord::epoch_begun(const BeginEpoch& epoch) {
  std::vector<std::uint32_t> members;
  members.reserve(epoch.members.size());
  for (const Rank rank : epoch.members) members.push_back(rank.value());
  write("epoch", {{"epoch", epoch.epoch.value()},
                  {"members", members},
                  {"first_step", epoch.first_step.value()},
                  {"restore_step", epoch.restore_step.value()},
                  {"data_row", epoch.data_row},
                  {"restored_from", describe(epoch.restore)},
                  {"changes", epoch.changes}});
  ranks_ = static_cast<std::uint32_t>(epoch.members.size());
  if (epoch.epoch > EpochId{1})
    log_.info(fmt::format("epoch {} goes on after step {}, from {}", epoch.epoch.value(), epoch.before_first().value(), describe(epoch.restore)));
  else if (epoch.restore_step > Step{0})
    log_.info(fmt::format("resuming from the checkpoint of step {}", epoch.restore_step.value()));
}

void JobRecord::epoch_ready(EpochId epoch, std::uint64_t arena_bytes) {
  write("ready", {{"epoch", epoch.value()}, {"arena_bytes", arena_bytes}});
  log_.info(fmt::format("epoch {}: {} ranks are ready, plans agree, {:.1f} MiB of device memory planned a rank", epoch.value(), ranks_,
                        static_cast<double>(arena_bytes) / 1048576.0));
}

void JobRecord::devices(const DevicePowers& of_each) {
  options_.rates.peak_flops = of_each.peak_flops;
  options_.rates.peak_flops_fp8 = of_each.peak_flops_fp8;
  options_.rates.memory_bytes = of_each.memory_bytes;
  metrics_.set_rates(options_.rates);
  console_.set_rates(options_.rates);
  sinks_->set_rates(options_.rates);
}

void JobRecord::step(const StepRecord& record) {
  if (record.common.outcome == VerdictOutcome::skip) {
    write("skip", {{"step", record.step.value()}, {"non_finite", record.common.non_finite}, {"cause", describe_nonfinite(record.common)}});
    log_.warning(fmt::format("step {} was skipped: {}", record.step.value(), describe_nonfinite(record.common)));
  }
  if (options_.step_times) options_.step_times->add(record);
  if (options_.log_freq) {
    console_.every(options_.log_freq(record.step));
    sinks_->every(options_.log_freq(record.step));
  }
  const StepMetrics metrics = metrics_of(record);
  last_loss_ = std::isnan(metrics.loss) ? std::nan("") : metrics.loss;  // without a sign, which means nothing
  warn_once(metrics_.append(metrics));
  const auto line = console_.add(metrics);
  if (line) log_.info(*line);
  if (metrics.validation_tokens > 0) log_.info(console_.validation(metrics));
  sinks_->step(record, line ? &console_.logged() : nullptr);
}

void JobRecord::checkpoint(Step step, const std::string& problem) {
  write(problem.empty() ? "sealed" : "not_sealed", {{"step", step.value()}, {"problem", problem}});
  warn_once(metrics_.sync());
  if (problem.empty())
    log_.info(fmt::format("checkpoint of step {} is sealed", step.value()));
  else
    log_.warning(fmt::format("checkpoint of step {} was not saved: {}; training goes on, older checkpoints stay", step.value(), problem));
}

void JobRecord::stop_requested(const std::string& reason, Step at) {
  write("stop_requested", {{"reason", reason}, {"at", at.value()}});
  const char* save = options_.checkpoints ? "a checkpoint is saved" : "there will be no checkpoint (checkpoint.enable = false)";
  log_.warning(at == Step{0} ? fmt::format("{}: stopping before the first step", reason)
                             : fmt::format("{}: all ranks stop after step {}, {}; once more stops at once", reason, at.value(), save));
}

void JobRecord::fault(const std::string& cause, Rank rank, bool first) {
  write("fault", {{"cause", cause}, {"rank", rank_or_null(rank)}, {"first", first}});
  if (first)
    log_.error(cause);
  else
    log_.debug("then: " + cause);
  not_shown_ = first ? std::pair<Rank, std::string>{} : std::pair{rank, cause};
}

void JobRecord::recovering(EpochId ended, std::uint32_t attempts) {
  write("recovering", {{"epoch", ended.value()}, {"attempts", attempts}});
  recovering_ = true;
  log_.warning(fmt::format("epoch {} has ended; the ranks come to rest and go on from the newest snapshot", ended.value()));
}

void JobRecord::respawn(Rank rank, Incarnation incarnation) {
  write("respawn", {{"rank", rank.value()}, {"incarnation", incarnation.value()}});
  const auto [of, cause] = std::exchange(not_shown_, {});  // another rank may have noticed the death first: what it was is said here
  log_.warning(fmt::format("{}the process of rank {} is started again, for the {}. time", of == rank && !cause.empty() ? cause + "; " : "", rank.value(),
                           incarnation.value()));
}

void JobRecord::recovered(EpochId epoch, Step step, Nanos took) {
  const double seconds = std::chrono::duration<double>(took).count();
  write("recovered", {{"epoch", epoch.value()}, {"step", step.value()}, {"seconds", seconds}});
  recovering_ = false;
  log_.info(fmt::format("recovered: step {}, the first new one, {:.2f} s after the fault", step.value(), seconds));
}

void JobRecord::flight_record(const std::string& text) {
  const auto name = fmt::format("flight-{:%Y%m%dT%H%M%S}.txt", fmt::gmtime(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())));
  const auto file = options_.run_folder / name;
  std::ofstream(file) << text;
  write("flight_record", {{"file", name}});
  log_.warning(fmt::format("a time limit is over; what every rank was at stands in {}:\n{}", file.string(), text));
}

void JobRecord::fault_fired(Rank rank, std::uint32_t rule, const Where& where, const std::string& operation) {
  write("fault_fired", {{"rank", rank.value()},
                        {"rule", rule + 1},
                        {"step", where.step.value()},
                        {"micro", where.micro.value()},
                        {"unit", where.unit.value()},
                        {"operation", operation}});
}

void JobRecord::changed(Step from, const std::vector<std::string>& changes, const std::string& by) {
  write("changed", {{"from_step", from.value()}, {"changes", changes}, {"by", by}});
  for (const std::string& change : changes) log_.info(fmt::format("from step {} on: {} ({})", from.value(), change, by));
}

void JobRecord::change_settled(Step from, const std::string& change, const std::string& problem) {
  write(problem.empty() ? "change_in_force" : "change_refused", {{"from_step", from.value()}, {"change", change}, {"problem", problem}});
  if (problem.empty())
    log_.info(fmt::format("in force from step {} on: {}", from.value(), change));
  else
    log_.warning(fmt::format("refused after all, nothing has changed: {}: {}", change, problem));
}

void JobRecord::epoch_ends(EpochId epoch, Step after) {
  write("epoch_ends", {{"epoch", epoch.value()}, {"after_step", after.value()}});
  log_.info(fmt::format("epoch {} ends with step {}: every rank leaves its state for the next one", epoch.value(), after.value()));
}

void JobRecord::rank_added(Rank rank, Incarnation incarnation) {
  write("rank_added", {{"rank", rank.value()}, {"incarnation", incarnation.value()}});
  log_.info(fmt::format("a process is started to join the run as rank {}", rank.value()));
}

void JobRecord::rank_let_go(Rank rank, std::uint32_t left) {
  write("rank_let_go", {{"rank", rank.value()}, {"left", left}});
  log_.warning(fmt::format("the run goes on without rank {}: {} rank{} left", rank.value(), left, left == 1 ? " is" : "s are"));
}

void JobRecord::rolled_back(Step step, const EpochOrigin& to, const std::string& why) {
  write("rollback", {{"step", step.value()}, {"to_step", to.step.value()}, {"to", describe(to)}, {"cause", why}});
  log_.warning(fmt::format("step {}: {}; training goes on with step {} from {} (training.guard)", step.value(), why, step.value() + 1, describe(to)));
}

void JobRecord::kept(Step step, EpochId epoch) { write("kept", {{"step", step.value()}, {"epoch", epoch.value()}}); }

void JobRecord::not_kept(Step step, Rank rank, const std::string& problem) {
  write("not_kept", {{"step", step.value()}, {"rank", rank.value()}, {"problem", problem}});
  log_.warning(fmt::format("rank {}: no snapshot in memory of step {}: {}; the one before stays", rank.value(), step.value(), problem));
}

void JobRecord::finished(const JobEnd& end) {
  write("end", {{"ok", end.ok},
                {"cause", end.cause},
                {"last_step", end.last_step.value()},
                {"on_request", end.on_request},
                {"sealed", end.sealed ? json(end.sealed->value()) : json()}});
  sinks_->close();
  for (const Result<void>& written : {metrics_.sync(), journal_.sync()})
    if (!written) lost_ += (lost_.empty() ? "" : "; ") + written.error().message;
}

}  // namespace troupe
