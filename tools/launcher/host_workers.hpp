#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/checkpoint/agent_memory.hpp"
#include "src/faults/fault_ledger.hpp"
#include "tools/launcher/host_agent.hpp"
#include "tools/launcher/socket.hpp"

namespace troupe {

/// What the Coordinator wants of one rank's process.
struct WorkerOrder {
  Rank rank;
  Incarnation incarnation = {};  ///< as which it is started (again); what is left of the one before is killed first
  bool let_go = false;           ///< how it ends is nobody's concern any more
  bool kill = false;             ///< let_go: what is left of it is killed
};

/// The workers of one host through all their lives, and what outlives them: the memory of their snapshots, and the ledgers of fault rules. Of the thread
/// that HostAgent is of.
class HostWorkers {
 public:
  struct Options {
    std::filesystem::path executable;
    std::filesystem::path run_folder;                              ///< logs/rank-N.log go there
    std::vector<std::pair<std::string, std::string>> environment;  ///< what each is told, beside its rank
    Rank first;                                                    ///< of this host: its local rank is 0
  };
  struct Handler {
    /// A process has ended that is not to be started again already, or could not be started. What it fired is told before.
    std::function<void(WorkerEnd)> ended;
    std::function<void(Rank, const FaultFiring&)> fired;
  };
  explicit HostWorkers(Handler handler) : handler_(std::move(handler)) {}

  /// Once each, before all else: the memory, then how workers are started.
  [[nodiscard]] Result<void> take_memory();
  void open(Options options) { options_ = std::move(options); }
  /// The process of ranks first … first + ranks − 1.
  [[nodiscard]] Result<void> start(Rank first, std::uint32_t ranks);
  /// Loader process `number`, which counts as rank world_size + number.
  [[nodiscard]] Result<void> start_loader(std::uint32_t number, std::uint32_t world_size);
  /// A process that hosts several ranks is asked for by each of them, and started once. Does not block.
  void obey(const WorkerOrder& order);
  /// What fault rules have fired since the last call.
  void look_at_ledgers();
  /// Who has ended since the last call; SIGCHLD says when to ask.
  void look();
  /// HostAgent::stop; the ends go to the handler.
  void stop(std::chrono::milliseconds patience, const SignalQueue* signals = nullptr);
  [[nodiscard]] std::optional<int> cut_short() const noexcept { return agent_.cut_short(); }
  [[nodiscard]] std::size_t running() const noexcept { return agent_.running(); }
  /// Of the snapshots of this host's ranks (AgentMemory).
  [[nodiscard]] int memory() const noexcept { return memory_.get(); }

 private:
  struct RankLedger {
    RankLedger(Rank of, int descriptor) : rank(of), memory(descriptor, of.value()), ledger(memory.notes()) {}
    Rank rank;
    AgentMemory memory;
    FaultLedger ledger;
    std::uint64_t seen = 0;
  };
  [[nodiscard]] WorkerCommand* command_of(Rank rank);
  [[nodiscard]] WorkerCommand describe(Rank first, std::uint32_t ranks);
  void start_anew(WorkerCommand& command);
  void let_go(const WorkerOrder& order);
  void tell(WorkerEnd end);

  Handler handler_;
  Options options_;
  Descriptor memory_;
  std::vector<Rank> let_go_;  ///< by the first rank of its process
  std::vector<WorkerCommand> commands_;
  std::vector<std::unique_ptr<RankLedger>> ledgers_;
  HostAgent agent_;
};

}  // namespace troupe
