#include "tools/launcher/remote_hosts.hpp"

#include <fmt/format.h>

#include <utility>

namespace troupe {

RemoteHosts::RemoteHosts(std::uint32_t nodes, std::uint32_t ranks_each, Handler handler, Log& log)
    : nodes_(nodes), ranks_each_(ranks_each), handler_(std::move(handler)), log_(log) {
  for (Rank rank{ranks_each_}; hosts(rank); ++rank) waiting_[rank] = WorkerOrder{.rank = rank};
}

void RemoteHosts::obey(const WorkerOrder& order) {
  const std::uint32_t node = order.rank.value() / ranks_each_;
  if (live_.contains(node) && !returning_.contains(node)) return send(node, order);
  if (order.let_go)
    waiting_.erase(order.rank);
  else
    waiting_[order.rank] = order;
}

void RemoteHosts::send(std::uint32_t node, const WorkerOrder& order) {
  if (!order.let_go) running_[order.rank] = order.incarnation;
  handler_.send(node, write(HostOrder{order}));
}

void RemoteHosts::take(const HostEvent& event) {
  switch (event.kind) {
    case HostEvent::Kind::joined: return joined(event.node, event.text);
    case HostEvent::Kind::told: return told(event.node, event.text);
    case HostEvent::Kind::gone: return gone(event.node);
  }
}

void RemoteHosts::joined(std::uint32_t node, const std::string& host) {
  live_[node] = host;
  if (over_) return handler_.send(node, write(HostOrder{EndOrder{.ok = false, .cause = "the job was over before its host agent came", .patience = {}}}));
  const std::uint32_t first = node * ranks_each_;
  log_.info(fmt::format("the agent of node {} ({}) has joined; it hosts {}", node, host,
                        ranks_each_ == 1 ? fmt::format("rank {}", first) : fmt::format("the ranks {} to {}", first, first + ranks_each_ - 1)));
  if (been_.insert(node).second || (node > 1 && !live_.contains(node - 1))) return start_ranks_of(node);
  returning_[node] = {};
  if (node == 1) return returning(node, handler_.give_back(node));
  handler_.send(node - 1, write(HostOrder{ReturnOrder{node}}));
}

void RemoteHosts::returning(std::uint32_t node, std::size_t snapshots) {
  const auto waits = returning_.find(node);
  if (waits == returning_.end()) return;
  waits->second.snapshots = snapshots;
  if (waits->second.there < snapshots) return;
  if (snapshots > 0) log_.info(fmt::format("node {} has back what its ranks had kept: {} snapshots from the memory of node {}", node, snapshots, node - 1));
  returning_.erase(waits);
  start_ranks_of(node);
}

void RemoteHosts::copy(const SnapshotName& snapshot) {
  const std::uint32_t node = snapshot.rank.value() / ranks_each_;
  if (live_.contains(node)) handler_.send(node, write(HostOrder{CopyOrder{snapshot}}));
}

void RemoteHosts::copied(const CopyReport& report) {
  if (!report.problem.empty()) log_.warning(report.problem);
  const std::uint32_t node = report.snapshot.rank.value() / ranks_each_;
  const auto waits = returning_.find(node);
  if (waits == returning_.end()) return handler_.copied(report);
  ++waits->second.there;
  if (waits->second.snapshots) returning(node, *waits->second.snapshots);
}

void RemoteHosts::start_ranks_of(std::uint32_t node) {
  for (std::uint32_t i = 0; i < ranks_each_; ++i) {
    const auto order = waiting_.extract(Rank{node * ranks_each_ + i});
    if (order) send(node, order.mapped());
  }
}

void RemoteHosts::told(std::uint32_t node, const std::string& text) {
  auto report = read_host_report(text);
  if (!report) return log_.warning(fmt::format("node {}: {}", node, report.error().message));
  if (auto* const end = std::get_if<WorkerEnd>(&*report)) {
    end->host = live_[node];
    for (std::uint32_t i = 0; i < end->ranks; ++i) {
      const auto running = running_.find(Rank{end->first.value() + i});
      if (running != running_.end() && running->second == end->incarnation) running_.erase(running);
    }
    return handler_.ended(std::move(*end));
  }
  if (const auto* const fired = std::get_if<RankFiring>(&*report)) return handler_.fired(*fired);
  if (const auto* const copy = std::get_if<CopyReport>(&*report)) return copied(*copy);
  if (const auto* const back = std::get_if<ReturnReport>(&*report)) return returning(back->node, back->snapshots);
  handler_.stop(std::get<StopReport>(*report).reason + fmt::format(" by the agent of node {} ({})", node, live_[node]));
}

void RemoteHosts::gone(std::uint32_t node) {
  const std::string host = std::exchange(live_[node], {});
  live_.erase(node);
  returning_.erase(node);
  if (over_) return;
  if (returning_.erase(node + 1) > 0) start_ranks_of(node + 1);  // what it was to get back is gone with this one
  log_.error(fmt::format("the agent of node {} ({}) is gone, and its ranks with it", node, host));
  for (std::uint32_t i = 0; i < ranks_each_; ++i) {
    const auto running = running_.extract(Rank{node * ranks_each_ + i});
    if (running)
      handler_.lost(running.key(), fmt::format("rank {} is gone with the agent of node {} ({})", running.key().value(), node, host), running.mapped());
  }
}

void RemoteHosts::end(const EndOrder& order) {
  over_ = true;
  for (const auto& [node, host] : live_) handler_.send(node, write(HostOrder{order}));
}

}  // namespace troupe
