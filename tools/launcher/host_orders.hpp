#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

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
/// This host holds this snapshot: another node's agent is to have a copy.
struct CopyOrder {
  SnapshotName snapshot;
  std::uint32_t to = 0;  ///< a node
};
/// Tell which snapshots are here.
struct HoldingsOrder {
  std::uint64_t question = 0;
};
/// Snapshots of epochs before this one, of other hosts' ranks, are not needed any more.
struct ForgetOrder {
  EpochId before;
};
/// Say that you live: somebody else claims to be the agent of this node.
struct PresentOrder {};
/// Launcher → agent.
using HostOrder = std::variant<WorkerOrder, CopyOrder, HoldingsOrder, ForgetOrder, PresentOrder, EndOrder>;

/// A fault rule has fired on a rank.
struct RankFiring {
  Rank rank;
  FaultFiring firing;
};
/// The agent was asked to stop the job (a signal).
struct StopReport {
  std::string reason;
};
/// Of the copy of a snapshot for a node: its sender says that all of it has left, its receiver that it is whole, or either that it will not be.
struct CopyReport {
  SnapshotName snapshot;
  std::uint32_t to = 0;
  bool sent = false;  ///< it has left, and nothing is known of its arrival
  std::string problem = {};
};
/// What is whole in this agent's memory, whoever kept it.
struct HoldingsReport {
  std::uint64_t question = 0;
  std::vector<SnapshotName> snapshots;
};
struct PresentReport {};
/// Agent → launcher.
using HostReport = std::variant<WorkerEnd, RankFiring, StopReport, CopyReport, HoldingsReport, PresentReport>;

[[nodiscard]] std::string write(const HostOrder& order);
[[nodiscard]] std::string write(const HostReport& report);
[[nodiscard]] Result<HostOrder> read_host_order(const std::string& text);
[[nodiscard]] Result<HostReport> read_host_report(const std::string& text);

}  // namespace troupe
