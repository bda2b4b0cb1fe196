#include "tools/worker/rank_communicators.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <stdexcept>

namespace troupe {
namespace {

const Peer* host_of(Rank rank, std::span<const Peer> peers) {
  const auto found = std::ranges::find_if(peers, [rank](const Peer& peer) { return peer.first <= rank && rank.value() - peer.first.value() < peer.ranks; });
  return found == peers.end() ? nullptr : &*found;
}

std::uint32_t place_in(std::span<const Rank> members, Rank rank) { return static_cast<std::uint32_t>(std::ranges::find(members, rank) - members.begin()); }

}  // namespace

Result<CollectivePath> choose_collectives(const std::string& setting, std::span<const Peer> peers, std::span<const Rank> members) {
  std::map<std::string, Rank> hosts;
  std::map<Rank, Rank> processes;
  std::optional<std::pair<Rank, Rank>> together;
  for (const Rank member : members) {
    const Peer* const peer = host_of(member, peers);
    if (peer == nullptr) return Error{fmt::format("no process of the job hosts rank {}, a member of the epoch", member.value())};
    hosts.emplace(peer->host, member);
    const auto [first, alone] = processes.emplace(peer->first, member);
    if (!alone && !together) together = {first->second, member};
  }
  const bool several = hosts.size() > 1;
  const std::string where = several ? fmt::format("rank {} is on {} and rank {} on {}", hosts.begin()->second.value(), hosts.begin()->first,
                                                  std::next(hosts.begin())->second.value(), std::next(hosts.begin())->first)
                                    : std::string{"all ranks are on one host"};
  if (setting == "shared_memory" && several)
    return Error{"comm.collectives = \"shared_memory\" joins the ranks of one host, but " + where + ": use \"auto\" or \"transport\""};
  if (setting == "shared_memory" || (setting == "auto" && !several)) return CollectivePath::shared_memory;
  if (together)
    return Error{
        fmt::format("collectives over the transport (comm.collectives = \"{}\"; {}) need a process for each rank, but ranks {} and {} share one: start them "
                    "without --ranks-in-process",
                    setting, where, together->first.value(), together->second.value())};
  return CollectivePath::transport;
}

std::shared_ptr<Communicator> RankCommunicators::make(const EpochStart& start, const std::string& name, Nanos timeout, const std::stop_token& stop) const {
  const auto peers = ground_.peers->wait(stop, timeout, start.members, start.respawns);
  if (!peers) throw std::runtime_error(peers.error().message);
  const auto path = choose_collectives(ground_.setting, *peers, start.members);
  if (!path) throw std::runtime_error(path.error().message);
  const std::string tag = start.communicator_tag + "-" + name;
  if (*path == CollectivePath::transport) return over_transport(start, *peers, tag, timeout, stop);
  SharedMemoryOptions options;
  options.tag = tag;
  options.rank = place_in(start.members, start.rank);
  options.size = static_cast<std::uint32_t>(start.members.size());
  options.timeout = timeout;
  const Peer* const process = host_of(start.rank, *peers);
  const bool together = std::ranges::all_of(start.members, [&](Rank member) { return host_of(member, *peers) == process; });
  options.registry = together ? ground_.registry : nullptr;  // ranks of other processes may have joined
  options.stop = stop;
  return make_shared_memory_communicator(options, *ground_.clock);
}

std::shared_ptr<Communicator> RankCommunicators::over_transport(const EpochStart& start, std::span<const Peer> peers, const std::string& tag, Nanos timeout,
                                                                const std::stop_token& stop) const {
  TransportCommunicatorOptions options;
  options.tag = tag;
  options.epoch = start.epoch;
  options.rank = place_in(start.members, start.rank);
  options.timeout = timeout;
  options.stop = stop;
  for (const Rank member : start.members) {
    options.processes.push_back(host_of(member, peers)->first);
    if (member == start.rank) continue;
    if (auto connected = ground_.link->connect_to(member); !connected) throw std::runtime_error(connected.error().message);
  }
  return make_transport_communicator(options, *ground_.clock, *ground_.mail);
}

}  // namespace troupe
