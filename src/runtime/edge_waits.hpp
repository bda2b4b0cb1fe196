#pragma once
#include <array>
#include <optional>
#include <utility>

#include "messages/edge_kind.hpp"
#include "src/base/clock.hpp"

namespace troupe {

/// How long a lane stood idle for want of each edge. Told by the lane's actor after each of its decisions; one thread.
class EdgeWaits {
 public:
  /// `edge`: what the idle lane waits for as of `now`; nothing when it works, or waits for something else.
  void note(std::optional<EdgeKind> edge, Nanos now) {
    if (edge == edge_) return;
    if (edge_) waited_[static_cast<std::size_t>(*edge_)] += now - since_;
    edge_ = edge;
    since_ = now;
  }
  /// Since the call before.
  [[nodiscard]] Nanos take(EdgeKind edge) { return std::exchange(waited_[static_cast<std::size_t>(edge)], Nanos{0}); }

 private:
  std::optional<EdgeKind> edge_;
  Nanos since_{0};
  std::array<Nanos, edge_count> waited_{};
};

}  // namespace troupe
