#include "tools/launcher/job_record.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <ctime>
#include <nlohmann/json.hpp>

namespace troupe {
namespace {

using nlohmann::json;

void write_line(std::ofstream& file, const char* event, json fields) {
  const auto now = std::chrono::system_clock::now();
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  json line{{"time", fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(std::chrono::system_clock::to_time_t(now)), milliseconds)}, {"event", event}};
  line.update(fields);
  file << line.dump(-1, ' ', false, json::error_handler_t::replace) << '\n' << std::flush;
}

json rank_or_null(Rank rank) { return rank == launcher_rank ? json() : json(rank.value()); }

}  // namespace

JobRecord::JobRecord(const std::filesystem::path& run_folder, std::uint32_t world_size, bool checkpoints, StepSink sink, Log& log)
    : world_size_(world_size), checkpoints_(checkpoints), sink_(std::move(sink)), log_(log), journal_(run_folder / "journal.jsonl", std::ios::app) {}

void JobRecord::joined(const JoinedRank& rank, std::uint32_t so_far) {
  write_line(journal_, "joined", {{"rank", rank.rank.value()}, {"pid", rank.pid}, {"host", rank.host}, {"restored", rank.restored.value()}});
  if (so_far == world_size_) log_.info(fmt::format("all {} ranks have joined", world_size_));
}

void JobRecord::epoch_begun(const BeginEpoch& epoch) {
  std::vector<std::uint32_t> members;
  for (const Rank rank : epoch.members) members.push_back(rank.value());
  write_line(journal_, "epoch", {{"epoch", epoch.epoch.value()}, {"members", members}, {"first_step", epoch.first_step.value()}, {"restore_step", epoch.restore_step.value()}});
  if (epoch.restore_step > Step{0}) log_.info(fmt::format("resuming from the checkpoint of step {}", epoch.restore_step.value()));
}

void JobRecord::epoch_ready(EpochId epoch, std::uint64_t arena_bytes) {
  write_line(journal_, "ready", {{"epoch", epoch.value()}, {"arena_bytes", arena_bytes}});
  log_.info(fmt::format("epoch {}: {} ranks are ready, plans agree, {:.1f} MiB of device memory planned a rank", epoch.value(), world_size_, static_cast<double>(arena_bytes) / 1048576.0));
}

void JobRecord::step(const StepRecord& record) {
  if (record.common.outcome == VerdictOutcome::skip) {
    write_line(journal_, "skip", {{"step", record.step.value()}, {"non_finite", record.common.non_finite}});
    log_.warning(fmt::format("step {} was skipped: {} values were not finite", record.step.value(), record.common.non_finite));
  }
  sink_(record);
}

void JobRecord::checkpoint(Step step, const std::string& problem) {
  write_line(journal_, problem.empty() ? "sealed" : "not_sealed", {{"step", step.value()}, {"problem", problem}});
  if (problem.empty()) log_.info(fmt::format("checkpoint of step {} is sealed", step.value()));
  else log_.warning(fmt::format("checkpoint of step {} was not saved: {}; training goes on, older checkpoints stay", step.value(), problem));
}

void JobRecord::stop_requested(const std::string& reason, Step at) {
  write_line(journal_, "stop_requested", {{"reason", reason}, {"at", at.value()}});
  const char* save = checkpoints_ ? "a checkpoint is saved" : "there will be no checkpoint (checkpoint.enable = false)";
  log_.warning(at == Step{0} ? fmt::format("{}: stopping before the first step", reason) : fmt::format("{}: all ranks stop after step {}, {}; once more stops at once", reason, at.value(), save));
}

void JobRecord::fault(const std::string& cause, Rank rank, bool first) {
  write_line(journal_, "fault", {{"cause", cause}, {"rank", rank_or_null(rank)}, {"first", first}});
  if (first) log_.error(cause);
  else log_.debug("then: " + cause);
}

void JobRecord::finished(const JobEnd& end) {
  write_line(journal_, "end", {{"ok", end.ok}, {"cause", end.cause}, {"last_step", end.last_step.value()}, {"on_request", end.on_request}, {"sealed", end.sealed ? json(end.sealed->value()) : json{}}});
}

}  // namespace troupe
