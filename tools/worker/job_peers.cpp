#include "tools/worker/job_peers.hpp"

#include <fmt/format.h>

#include <chrono>

namespace troupe {

namespace {

/// Respawns of all ranks together.
std::uint64_t lives(const std::vector<Peer>& peers) {
  std::uint64_t sum = 0;
  for (const Peer& peer : peers) sum += std::uint64_t{peer.incarnation.value()} * peer.ranks;
  return sum;
}

}  // namespace

void JobPeers::set(std::vector<Peer> peers) {
  const std::lock_guard lock(mutex_);
  peers_ = std::move(peers);
  changed_.notify_all();
}

Result<std::vector<Peer>> JobPeers::wait(const std::stop_token& stop, Nanos limit, std::uint64_t respawns) const {
  std::unique_lock lock(mutex_);
  if (changed_.wait_for(lock, stop, limit, [&] { return peers_.has_value() && lives(*peers_) >= respawns; })) return *peers_;
  if (stop.stop_requested()) return Error{"stopped before the launcher had told the addresses of the other ranks"};
  return Error{fmt::format("the launcher has not told the addresses of the other ranks within {:.1f} s", std::chrono::duration<double>(limit).count())};
}

}  // namespace troupe
