#include "tools/worker/job_peers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace troupe {

namespace {

/// Do these host all members, in the lives that are wanted?
bool host_all(const std::vector<Peer>& peers, std::span<const Rank> members, std::uint64_t lives) {
  std::uint64_t sum = 0;
  for (const Rank member : members) {
    const auto peer = std::ranges::find_if(peers, [member](const Peer& p) { return p.first <= member && member.value() - p.first.value() < p.ranks; });
    if (peer == peers.end()) return false;
    sum += peer->incarnation.value();
  }
  return sum >= lives;
}

}  // namespace

void JobPeers::set(std::vector<Peer> peers) {
  const std::lock_guard lock(mutex_);
  peers_ = std::move(peers);
  changed_.notify_all();
}

Result<std::vector<Peer>> JobPeers::wait(const std::stop_token& stop, Nanos limit, std::span<const Rank> members, std::uint64_t lives) const {
  std::unique_lock lock(mutex_);
  if (changed_.wait_for(lock, stop, limit, [&] { return peers_.has_value() && host_all(*peers_, members, lives); })) return *peers_;
  if (stop.stop_requested()) return Error{"stopped before the launcher had told the addresses of the other ranks"};
  return Error{fmt::format("the launcher has not told the addresses of the other ranks within {:.1f} s", std::chrono::duration<double>(limit).count())};
}

}  // namespace troupe
