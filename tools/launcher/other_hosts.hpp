#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "src/base/log.hpp"
#include "tools/launcher/bell_queue.hpp"
#include "tools/launcher/job_host.hpp"
#include "tools/launcher/remote_hosts.hpp"
#include "tools/launcher/snapshot_courier.hpp"

namespace troupe {

/// The job's other hosts, as `troupe train` on its first one needs them: what the Coordinator wants of them goes to their agents, what these say to the
/// Coordinator, and this host's memory takes part in the copies of snapshots. A job of one host has none of this. Of the main thread; what other threads have
/// for it rings the bell, and waits for look().
class OtherHosts {
 public:
  struct Options {
    RemoteHosts::Options hosts;
    bool keeps_copies = false;  ///< the run recovers: each snapshot is kept on two hosts
    int memory = -1;            ///< of this host's agent (AgentMemory)
  };
  struct Handler {
    std::function<void(WorkerEnd)> ended;
    std::function<void(const RankFiring&)> fired;
  };
  OtherHosts(const Options& options, Handler handler, Log& log);

  /// What the Coordinator and its host are to know of them. Outlives that host.
  void prepare(JobHostOptions& options);
  void open(JobHost& host) { host_ = &host; }
  [[nodiscard]] const Bell& bell() const noexcept { return posted_.bell(); }
  /// When the bell rings, and now and then.
  void look();

  [[nodiscard]] bool hosts(Rank rank) const noexcept { return hosts_.hosts(rank); }
  void obey(const WorkerOrder& order) { hosts_.obey(order); }
  void end(const EndOrder& order) { hosts_.end(order); }
  [[nodiscard]] bool all_gone() const noexcept { return hosts_.all_gone(); }

 private:
  [[nodiscard]] RemoteHosts::Handler handler_of(Handler handler);
  void told(const SnapshotCourier::News& news);
  void ask_to_join(std::uint32_t node);
  void look_at_returned();

  Options options_;
  Log& log_;
  JobHost* host_ = nullptr;
  BellQueue<std::function<void()>> posted_;
  std::optional<SnapshotCourier> courier_;
  /// A node that has an agent again, while its ranks are still to become members.
  struct Returned {
    bool asked = false, told = false;
    std::uint32_t tries = 0;  ///< that were agreed to; what became of them the next answer tells
    std::chrono::steady_clock::time_point next = {};
  };
  std::map<std::uint32_t, Returned> returned_;
  RemoteHosts hosts_;
};

}  // namespace troupe
