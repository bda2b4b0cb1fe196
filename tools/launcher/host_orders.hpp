#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <variant>

#include "src/base/result.hpp"
#include "src/faults/fault_ledger.hpp"
#include "tools/launcher/host_workers.hpp"
#include "tools/launcher/snapshot_courier.hpp"

/// What the launcher and the agents of the job's other hosts say to each other over the control connection, as JSON.
namespace troupe {

/// The job is over: wait for the workers, tell how they ended, and end.
struct EndOrder {
  bool ok = false;
  std::string cause;                     ///< when not ok
  std::chrono::milliseconds patience{};  ///< for workers to end by themselves
};
/// A rank of this host has kept this: the agent of the node before is to have a copy.
struct CopyOrder {
  SnapshotName snapshot;
};
/// The agent of the next node has lost its memory: it is to have back what was copied here of its ranks.
struct ReturnOrder {
  std::uint32_t node = 0;
};
/// Launcher → agent.
using HostOrder = std::variant<WorkerOrder, CopyOrder, ReturnOrder, EndOrder>;

/// A fault rule has fired on a rank.
struct RankFiring {
  Rank rank;
  FaultFiring firing;
};
/// The agent was asked to stop the job (a signal).
struct StopReport {
  std::string reason;
};
/// The copy of a snapshot is whole in this agent's memory, or (with a problem) it will not be.
struct CopyReport {
  SnapshotName snapshot;
  std::string problem;
};
/// So many snapshots are on their way back to a node.
struct ReturnReport {
  std::uint32_t node = 0;
  std::size_t snapshots = 0;
};
/// Agent → launcher.
using HostReport = std::variant<WorkerEnd, RankFiring, StopReport, CopyReport, ReturnReport>;

[[nodiscard]] std::string write(const HostOrder& order);
[[nodiscard]] std::string write(const HostReport& report);
[[nodiscard]] Result<HostOrder> read_host_order(const std::string& text);
[[nodiscard]] Result<HostReport> read_host_report(const std::string& text);

}  // namespace troupe
