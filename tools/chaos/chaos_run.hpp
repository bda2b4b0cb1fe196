#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "src/config/job_config.hpp"
#include "tools/chaos/chaos_round.hpp"
#include "tools/launcher/signals.hpp"

namespace troupe {

/// What the rounds have in common.
struct ChaosSetup {
  JobConfig config;  ///< of the job; each round changes [elastic], [faults], [checkpoint] and limits of [comm]
  std::uint32_t ranks = 2;
  std::filesystem::path folder;           ///< for what the jobs write
  std::vector<std::string> undisturbed;   ///< what the run tells when nothing is done to it, a line a step
  std::chrono::seconds round_limit{300};  ///< a round that takes longer hangs
  std::chrono::seconds hang_limit{4};     ///< comm.train_timeout_seconds of the rounds
  double recover_within = 30;             ///< seconds from a fault to the first new step
};

/// What came of a round. `problems` is empty when every invariant held.
struct ChaosResult {
  std::uint32_t struck = 0;  ///< disturbances that met the run before its end
  std::uint64_t epochs = 0, respawns = 0;
  double longest_recovery = 0, seconds = 0;
  std::vector<std::string> problems;
};

/// Trains once without disturbance: fills `undisturbed` and the limits. The error ends with the job's last lines.
[[nodiscard]] Result<void> run_undisturbed(ChaosSetup& setup, const SignalQueue& signals);
/// Trains, disturbs, and checks what came of it. Blocks; a signal other than SIGCHLD kills the job, and is the error.
[[nodiscard]] Result<ChaosResult> run_round(const ChaosSetup& setup, const ChaosRound& round, const SignalQueue& signals);

}  // namespace troupe
