#pragma once
#include <condition_variable>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "src/base/clock.hpp"
#include "src/base/result.hpp"
#include "tools/launcher/control_protocol.hpp"

namespace troupe {

/// The processes of the job, as the control connection tells them once all ranks are here. Any thread.
class JobPeers {
 public:
  void set(std::vector<Peer> peers);
  /// Blocks until a list was told in which all members are hosted, by processes whose incarnations add up to at least `lives` over the
  /// members; at most `limit`; an Error then, and when `stop` is requested.
  [[nodiscard]] Result<std::vector<Peer>> wait(const std::stop_token& stop, Nanos limit, std::span<const Rank> members, std::uint64_t lives) const;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable_any changed_;
  std::optional<std::vector<Peer>> peers_;
};

}  // namespace troupe
