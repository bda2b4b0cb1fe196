#include "tools/launcher/remote_hosts.hpp"

#include <fmt/format.h>

#include <utility>

namespace troupe {

RemoteHosts::RemoteHosts(const Options& options, Handler handler, Log& log)
    : options_(options),
      handler_(std::move(handler)),
      log_(log),
      has_agent_(options.nodes),
      copies_(options.ranks_each,
              {.send =
                   [this](std::uint32_t from, const CopyOrder& order) {
                     if (from == 0) return handler_.send_copy(order);
                     handler_.send(from, write(HostOrder{order}));
                   },
               .ask =
                   [this](std::uint32_t node, const HoldingsOrder& order) {
                     if (node == 0) return copies_.holds(0, {order.question, handler_.held()});
                     handler_.send(node, write(HostOrder{order}));
                   },
               .copied = [this](const CopyReport& report) { handler_.copied(report); },
               .given_back = [this](std::uint32_t node, std::size_t snapshots) { given_back(node, snapshots); },
               .spread = [this](std::uint32_t number) { handler_.spread(number); }},
              log) {
  has_agent_[0] = true;
  for (Rank rank{options_.ranks_each}; hosts(rank); ++rank) waiting_[rank] = WorkerOrder{.rank = rank};
}

void RemoteHosts::obey(const WorkerOrder& order) {
  const std::uint32_t node = order.rank.value() / options_.ranks_each;
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
  const std::uint32_t first = node * options_.ranks_each;
  log_.info(fmt::format("the agent of node {} ({}) has joined; it hosts {}", node, host,
                        options_.ranks_each == 1 ? fmt::format("rank {}", first) : fmt::format("the ranks {} to {}", first, first + options_.ranks_each - 1)));
  copies_.came(node);
  has_agent_[node] = true;
  if (been_.insert(node).second) return start_ranks_of(node);
  if (options_.shrinks) {
    start_ranks_of(node);
    return handler_.returned(node);
  }
  returning_.insert(node);
  copies_.give_back(node);
}

void RemoteHosts::given_back(std::uint32_t node, std::size_t snapshots) {
  if (snapshots > 0) log_.info(fmt::format("node {} has back what its ranks had kept: {} snapshots from the memory of other hosts", node, snapshots));
  if (returning_.erase(node) > 0) start_ranks_of(node);
}

void RemoteHosts::spread(const EpochOrigin& state, const std::vector<Rank>& members, std::uint32_t number) {
  std::set<std::uint32_t> nodes;
  for (const Rank rank : members) nodes.insert(rank.value() / options_.ranks_each);
  copies_.spread(state, nodes, number);
}

void RemoteHosts::forget(EpochId before) {
  for (const auto& [node, host] : live_) handler_.send(node, write(HostOrder{ForgetOrder{before}}));
}

void RemoteHosts::start_ranks_of(std::uint32_t node) {
  for (std::uint32_t i = 0; i < options_.ranks_each; ++i) {
    const auto order = waiting_.extract(Rank{node * options_.ranks_each + i});
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
  if (const auto* const held = std::get_if<HoldingsReport>(&*report)) return copies_.holds(node, *held);
  if (std::holds_alternative<PresentReport>(*report)) return;
  handler_.stop(std::get<StopReport>(*report).reason + fmt::format(" by the agent of node {} ({})", node, live_[node]));
}

void RemoteHosts::gone(std::uint32_t node) {
  const std::string host = std::exchange(live_[node], {});
  live_.erase(node);
  returning_.erase(node);
  has_agent_[node] = false;
  if (over_) return;
  log_.error(fmt::format("the agent of node {} ({}) is gone, and its ranks with it", node, host));
  for (std::uint32_t i = 0; i < options_.ranks_each; ++i) {
    const auto running = running_.extract(Rank{node * options_.ranks_each + i});
    if (running)
      handler_.lost(running.key(), fmt::format("rank {} is gone with the agent of node {} ({})", running.key().value(), node, host), running.mapped());
  }
  copies_.gone(node);
}

void RemoteHosts::end(const EndOrder& order) {
  over_ = true;
  for (const auto& [node, host] : live_) handler_.send(node, write(HostOrder{order}));
}

}  // namespace troupe
