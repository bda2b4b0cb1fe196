#pragma once
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "actors/job_events.hpp"
#include "tools/launcher/signals.hpp"

namespace troupe {

/// Passes on what the Coordinator says, and keeps how it ended for the main thread, which waits for the bell: the end is kept
/// whatever becomes of passing it on.
class EndKeeper final : public JobEvents {
 public:
  explicit EndKeeper(JobEvents& next) : next_(next) {}
  void joined(const JoinedRank& rank, std::uint32_t so_far) override { next_.joined(rank, so_far); }
  void epoch_begun(const BeginEpoch& epoch) override { next_.epoch_begun(epoch); }
  void devices(const DevicePowers& of_each) override { next_.devices(of_each); }
  void epoch_ready(EpochId epoch, std::uint64_t arena_bytes) override { next_.epoch_ready(epoch, arena_bytes); }
  void step(const StepRecord& record) override { next_.step(record); }
  void checkpoint(Step step, const std::string& problem) override { next_.checkpoint(step, problem); }
  void stop_requested(const std::string& reason, Step at) override { next_.stop_requested(reason, at); }
  void fault(const std::string& cause, Rank rank, bool first) override { next_.fault(cause, rank, first); }
  void recovering(EpochId ended, std::uint32_t attempts) override { next_.recovering(ended, attempts); }
  void respawn(Rank rank, Incarnation incarnation) override { next_.respawn(rank, incarnation); }
  void recovered(EpochId epoch, Step step, Nanos took) override { next_.recovered(epoch, step, took); }
  void rolled_back(Step step, const EpochOrigin& to, const std::string& why) override { next_.rolled_back(step, to, why); }
  void kept(Step step, EpochId epoch) override { next_.kept(step, epoch); }
  void not_kept(Step step, Rank rank, const std::string& problem) override { next_.not_kept(step, rank, problem); }
  void flight_record(const std::string& text) override { next_.flight_record(text); }
  void fault_fired(Rank rank, std::uint32_t rule, const Where& where, const std::string& operation) override {
    next_.fault_fired(rank, rule, where, operation);
  }
  void changed(Step from, const std::vector<std::string>& changes, const std::string& by) override { next_.changed(from, changes, by); }
  void change_settled(Step from, const std::string& change, const std::string& problem) override { next_.change_settled(from, change, problem); }
  void epoch_ends(EpochId epoch, Step after) override { next_.epoch_ends(epoch, after); }
  void rank_added(Rank rank, Incarnation incarnation) override { next_.rank_added(rank, incarnation); }
  void rank_let_go(Rank rank, std::uint32_t left) override { next_.rank_let_go(rank, left); }
  /// What cannot be recorded is a failure of the job, if it had none.
  void finished(const JobEnd& end) override {
    JobEnd kept = end;
    try {
      next_.finished(end);
    } catch (const std::exception& problem) {
      if (kept.ok) kept.cause = std::string("the job's end could not be recorded: ") + problem.what();
      kept.ok = false;
    }
    {
      const std::lock_guard lock(mutex_);
      end_ = kept;
    }
    bell_.ring();
  }
  [[nodiscard]] std::optional<JobEnd> end() const {
    const std::lock_guard lock(mutex_);
    return end_;
  }
  [[nodiscard]] const Bell& bell() const noexcept { return bell_; }

 private:
  JobEvents& next_;
  mutable std::mutex mutex_;
  std::optional<JobEnd> end_;
  Bell bell_;
};

}  // namespace troupe
