#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/base/log.hpp"
#include "tools/launcher/host_orders.hpp"
#include "tools/launcher/job_host.hpp"

namespace troupe {

/// The job's hosts but the first, as its launcher sees them: who has an agent, and what it is to do once it has one. Host ("node") k hosts the ranks
/// k · ranks_each and on. A host whose agent is gone has lost its ranks with it; they are started again when another agent of that node joins. Each host but
/// the first has its ranks' snapshots copied to the host before, which gives them back to an agent that comes anew. Single-threaded.
class RemoteHosts {
 public:
  struct Handler {
    std::function<void(std::uint32_t node, const std::string& order)> send;
    std::function<void(WorkerEnd)> ended;
    std::function<void(const RankFiring&)> fired;
    std::function<void(const std::string& reason)> stop;                    ///< an agent was asked to stop the job
    std::function<void(Rank, const std::string& cause, Incarnation)> lost;  ///< the rank's process is gone with its host's agent
    std::function<void(const CopyReport&)> copied;
    std::function<std::size_t(std::uint32_t node)> give_back;  ///< sends node 1 what this host holds of its ranks' snapshots; how many that is
  };
  RemoteHosts(std::uint32_t nodes, std::uint32_t ranks_each, Handler handler, Log& log);
  [[nodiscard]] bool hosts(Rank rank) const noexcept { return rank.value() >= ranks_each_ && rank.value() < ranks_each_ * nodes_; }
  /// For a rank of another host: at once, or as soon as that has an agent.
  void obey(const WorkerOrder& order);
  /// A rank of another host has kept this: the host before is to hold a copy.
  void copy(const SnapshotName& snapshot);
  /// A copy became whole, or did not, here or on another host.
  void copied(const CopyReport& report);
  void take(const HostEvent& event);
  /// The job is over: agents are told, and may go.
  void end(const EndOrder& order);
  [[nodiscard]] bool all_gone() const noexcept { return live_.empty(); }

 private:
  void joined(std::uint32_t node, const std::string& host);
  void told(std::uint32_t node, const std::string& text);
  void gone(std::uint32_t node);
  void returning(std::uint32_t node, std::size_t snapshots);
  /// Its memory holds what there is to hold: its workers may be started.
  void start_ranks_of(std::uint32_t node);
  void send(std::uint32_t node, const WorkerOrder& order);

  std::uint32_t nodes_, ranks_each_;
  Handler handler_;
  Log& log_;
  std::map<std::uint32_t, std::string> live_;  ///< nodes with an agent, and the names of their hosts
  std::map<Rank, WorkerOrder> waiting_;        ///< for an agent to come
  std::map<Rank, Incarnation> running_;        ///< what agents were asked to start and have not told the end of
  /// A node whose agent has come in the place of one that is gone: until it has back what was copied of its ranks' snapshots.
  struct Returning {
    std::optional<std::size_t> snapshots;
    std::size_t there = 0;
  };
  std::map<std::uint32_t, Returning> returning_;
  std::set<std::uint32_t> been_;  ///< nodes that had an agent
  bool over_ = false;
};

}  // namespace troupe
