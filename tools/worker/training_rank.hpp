#pragma once
#include <filesystem>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>

#include "actors/rank_factory.hpp"
#include "src/config/job_config.hpp"
#include "src/runtime/runtime.hpp"
#include "tools/worker/loader_batches.hpp"
#include "tools/worker/rank_communicators.hpp"

namespace troupe {

class ActorSystem;
class AgentMemory;
class FaultPlan;
class LetterFaults;
class RingTracer;

struct TrainingRankOptions {
  JobConfig config;
  Rank rank;
  std::uint32_t world_size = 1;
  std::uint32_t local_rank = 0;  ///< on this host: the number of its GPU
  std::filesystem::path run_folder;
  Step resumed_from;           ///< what the run began from; 0: initial weights, or those of checkpoint.initial_load_path
  Runtime* runtime = nullptr;  ///< of this rank
  Directory* directory = nullptr;
  ActorSystem* system = nullptr;
  const RankCommunicators* communicators = nullptr;
  LoaderBatches* batches = nullptr;       ///< of the process
  AgentMemory* memory = nullptr;          ///< of this rank, in the host agent; null: none
  RingTracer* tracer = nullptr;           ///< null: off
  LetterFaults* letter_faults = nullptr;  ///< of the process; null: letters suffer none
};

/// Builds a real rank: device, data, model, plans, communicators, state from the seed or from a sealed checkpoint. Tells the log what
/// was built: parameters, memory of each edge and arena, mesh, precision.
class TrainingRankFactory final : public RankFactory {
 public:
  explicit TrainingRankFactory(TrainingRankOptions options);
  [[nodiscard]] std::unique_ptr<RankBody> build(const EpochStart& start) override;
  void fault_rules(const std::vector<std::string>& rules) override;
  void cancel(EpochId epoch, const std::string& cause) noexcept override;

 private:
  TrainingRankOptions options_;
  std::shared_ptr<FaultPlan> faults_;  ///< of the rank, through all its epochs: what has fired has fired
  std::size_t sent_rules_ = 0;         ///< added to the live run so far; of the Supervisor's thread
  std::mutex mutex_;
  std::stop_source stop_;  ///< of the build that runs
  EpochId building_, cancelled_;
};

}  // namespace troupe
