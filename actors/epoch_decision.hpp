#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "actors/membership.hpp"
#include "actors/restore_book.hpp"
#include "src/base/clock.hpp"
#include "src/base/ids.hpp"
#include "src/runtime/plan.hpp"

/// When an epoch begins, with whom, and which steps it may run: pure functions of what the Coordinator knows.
namespace troupe {

/// Most ranks of a job: EpochBegin names all members, four bytes each, and must fit into one frame (messages/frame.hpp).
inline constexpr std::uint32_t largest_world = 1800;

struct EpochOptions {
  std::uint32_t world_size = 1;
  std::uint64_t config_hash = 0;
  Nanos init_timeout{std::chrono::seconds{300}};  ///< comm.init_timeout_seconds: all ranks must have joined by then
  Step restore_step;                              ///< sealed checkpoint that the job resumes from; 0: none
  std::string job;                                ///< unique for each run: names communicators
  EpochId previous{0};
  std::vector<Rank> members = {};  ///< who must be there, in order; empty: ranks 0 to world_size − 1
};

/// The epoch begins at `first_step` from the state after `restore_step` (0: from the seed), the step before unless training was rolled back; `restore`
/// says where that lies.
struct BeginEpoch {
  EpochId epoch;
  std::vector<Rank> members;
  Step first_step, restore_step;
  std::string communicator_tag;
  EpochOrigin restore = {};
  std::uint64_t data_row = 0;             ///< rows of data used before first_step
  std::uint64_t respawns = 0;             ///< incarnations of the members' processes, summed
  std::vector<std::string> changes = {};  ///< of the run's configuration, "key=value", that hold in this epoch
  [[nodiscard]] Step before_first() const noexcept { return Step{first_step.value() - 1}; }
};
struct KeepWaiting {};
struct RefuseEpoch {
  std::optional<Rank> rank;  ///< at fault, when it is one
  std::string problem;
};
using EpochDecision = std::variant<KeepWaiting, BeginEpoch, RefuseEpoch>;

/// `waited`: since the Coordinator began to listen. Refuses as soon as what is known cannot become an epoch: a world too large, a rank that is no
/// member, one that joined twice, another world size or config than the Coordinator's, one that does not see the checkpoint to resume from; or, after the
/// timeout, because ranks are absent.
[[nodiscard]] EpochDecision decide_epoch(Nanos waited, std::span<const JoinedRank> joined, const EpochOptions& options);

/// Hash of the operations of each communicator, as EpochReady carries it.
using PlanHashes = std::map<CommunicatorKind, std::uint64_t>;
/// An error naming ranks and communicator when two ranks plan different sequences.
[[nodiscard]] std::optional<std::string> compare_plans(const std::map<Rank, PlanHashes>& ranks);

/// What a Horizon grants: one step.
struct StepGrant {
  Step step;
  StepKind kind = StepKind::train;
  bool last = false;
  double learning_rate = 0;
  std::optional<std::uint32_t> keep = {};  ///< slot of the snapshot in memory that is taken after it
};

/// Steps that may still be granted: after `granted`, at most `run_ahead` past the slowest report, not past `last`.
/// Returns the last step allowed; `granted` when none is.
[[nodiscard]] Step grants_allowed(Step granted, Step slowest_report, Step last, std::uint32_t run_ahead) noexcept;

}  // namespace troupe
