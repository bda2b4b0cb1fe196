#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "src/base/log.hpp"
#include "tools/launcher/host_orders.hpp"
#include "tools/launcher/job_host.hpp"
#include "tools/launcher/snapshot_copies.hpp"

namespace troupe {

/// The job's hosts but the first, as its launcher sees them: who has an agent, and what it is to do once it has one. Host ("node") k hosts the ranks
/// k · ranks_each and on. A host whose agent is gone has lost its ranks with it; when another agent of that node joins, they are started again, or
/// (`shrinks`) somebody is told, for the run goes on without them. Each host but the first has its ranks' snapshots copied to a host before it, which gives
/// them back to an agent that comes anew. Single-threaded.
class RemoteHosts {
 public:
  struct Options {
    std::uint32_t nodes = 1, ranks_each = 1;
    bool shrinks = false;  ///< elastic.policy
  };
  struct Handler {
    std::function<void(std::uint32_t node, const std::string& order)> send;
    std::function<void(WorkerEnd)> ended;
    std::function<void(const RankFiring&)> fired;
    std::function<void(const std::string& reason)> stop;                    ///< an agent was asked to stop the job
    std::function<void(Rank, const std::string& cause, Incarnation)> lost;  ///< the rank's process is gone with its host's agent
    std::function<void(const CopyReport&)> copied;                          ///< the second copy of what a rank has kept is there, or will not be
    std::function<void(const CopyOrder&)> send_copy;                        ///< from this host, node 0
    std::function<std::vector<SnapshotName>()> held;                        ///< by this host
    std::function<void(std::uint32_t number)> spread;                       ///< what spread() was to do is done
    std::function<void(std::uint32_t node)> returned;                       ///< shrinks: a node has an agent again
  };
  RemoteHosts(const Options& options, Handler handler, Log& log);
  [[nodiscard]] bool hosts(Rank rank) const noexcept { return rank.value() >= options_.ranks_each && rank.value() < options_.ranks_each * options_.nodes; }
  /// Could a process of this rank be started? Any thread.
  [[nodiscard]] bool can_start(Rank rank) const noexcept {
    const std::uint32_t node = rank.value() / options_.ranks_each;
    return node < options_.nodes && has_agent_[node];
  }
  /// For a rank of another host: at once, or as soon as that has an agent.
  void obey(const WorkerOrder& order);
  /// A rank of another host has kept this: a host before it is to hold a copy.
  void copy(const SnapshotName& snapshot) { copies_.copy(snapshot); }
  /// The hosts of these ranks are to hold all parts of this state.
  void spread(const EpochOrigin& state, const std::vector<Rank>& members, std::uint32_t number);
  /// Nothing that was kept in an epoch before this one is needed.
  void forget(EpochId before);
  /// A copy became whole here, or was sent from here, or was not.
  void copied(const CopyReport& report) { copies_.told(report); }
  void take(const HostEvent& event);
  /// Now and then.
  void look(SnapshotCopies::Time now) { copies_.look(now); }
  /// The job is over: agents are told, and may go.
  void end(const EndOrder& order);
  [[nodiscard]] bool all_gone() const noexcept { return live_.empty(); }

 private:
  void joined(std::uint32_t node, const std::string& host);
  void told(std::uint32_t node, const std::string& text);
  void gone(std::uint32_t node);
  void given_back(std::uint32_t node, std::size_t snapshots);
  /// Its memory holds what there is to hold: its workers may be started.
  void start_ranks_of(std::uint32_t node);
  void send(std::uint32_t node, const WorkerOrder& order);

  Options options_;
  Handler handler_;
  Log& log_;
  std::map<std::uint32_t, std::string> live_;  ///< nodes with an agent, and the names of their hosts
  std::map<Rank, WorkerOrder> waiting_;        ///< for an agent to come
  std::map<Rank, Incarnation> running_;        ///< what agents were asked to start and have not told the end of
  std::set<std::uint32_t> returning_;          ///< nodes whose agent has come in the place of one that is gone: until it has back what its ranks had kept
  std::set<std::uint32_t> been_;               ///< nodes that had an agent
  std::vector<std::atomic<bool>> has_agent_;   ///< by node
  bool over_ = false;
  SnapshotCopies copies_;
};

}  // namespace troupe
