#pragma once
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "actors/job_events.hpp"
#include "src/base/log.hpp"

namespace troupe {

/// Writes what happens to the job into RUN/journal.jsonl (one JSON object a line: time, event, fields) and the notable part into the
/// log; hands each step to the metric sinks. Called by the Coordinator's handlers.
class JobRecord final : public JobEvents {
 public:
  using StepSink = std::function<void(const StepRecord&)>;
  JobRecord(const std::filesystem::path& run_folder, std::uint32_t world_size, bool checkpoints, StepSink sink, Log& log);
  void joined(const JoinedRank& rank, std::uint32_t so_far) override;
  void epoch_begun(const BeginEpoch& epoch) override;
  void epoch_ready(EpochId epoch, std::uint64_t arena_bytes) override;
  void step(const StepRecord& record) override;
  void checkpoint(Step step, const std::string& problem) override;
  void stop_requested(const std::string& reason, Step at) override;
  void fault(const std::string& cause, Rank rank, bool first) override;
  void finished(const JobEnd& end) override;

 private:
  std::uint32_t world_size_;
  bool checkpoints_;
  StepSink sink_;
  Log& log_;
  std::ofstream journal_;
};

}  // namespace troupe
