#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/restore_book.hpp"
#include "src/base/log.hpp"
#include "tools/launcher/host_orders.hpp"

namespace troupe {

/// Which host's memory is to hold which rank's snapshots, and how they come there: of each snapshot that is kept a copy on another host, what a host held that
/// has come anew, and one state on all hosts. Orders copies from whoever holds them, has each that does not come whole sent once more, and tells what became
/// of it. Single-threaded; time is what look() was told last.
class SnapshotCopies {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::seconds arrives_within{10};  ///< of a copy's last piece having left: checking it takes milliseconds

  struct Handler {
    std::function<void(std::uint32_t from, const CopyOrder&)> send;             ///< this node has that one hold a copy
    std::function<void(std::uint32_t node, const HoldingsOrder&)> ask;          ///< answered by holds()
    std::function<void(const CopyReport&)> copied;                              ///< the copy of what was kept is there, or will not be
    std::function<void(std::uint32_t node, std::size_t snapshots)> given_back;  ///< so many
    std::function<void(std::uint32_t number)> spread;
  };
  /// `ranks_each`: node k hosts the ranks k · ranks_each and on.
  SnapshotCopies(std::uint32_t ranks_each, Handler handler, Log& log) : ranks_each_(ranks_each), handler_(std::move(handler)), log_(log) {}

  /// Nodes with an agent; node 0 is always there.
  void came(std::uint32_t node) { live_.insert(node); }
  void gone(std::uint32_t node);

  /// A rank of node 1 or later has kept this: the nearest host before it that has an agent is to hold a copy.
  void copy(const SnapshotName& snapshot);
  /// The agent of this node is new: it is to have what other hosts hold of its ranks.
  void give_back(std::uint32_t node);
  /// All these nodes are to hold all that anybody holds of this state. The one before, if it is not done, is given up.
  void spread(const EpochOrigin& state, const std::set<std::uint32_t>& nodes, std::uint32_t number);

  void told(const CopyReport& report);
  void holds(std::uint32_t node, const HoldingsReport& report);
  /// Now and then: what was sent and has not come is sent again.
  void look(Time now);

 private:
  /// What several copies are for.
  struct Gathering {
    std::optional<EpochOrigin> state;  ///< spread; else what the one target's ranks had
    std::set<std::uint32_t> targets;
    std::uint32_t number = 0;  ///< of the spread
    std::set<std::uint32_t> unanswered = {};
    std::map<std::uint32_t, std::vector<SnapshotName>> held = {};
    std::size_t missing = 0, arrived = 0;  ///< once all have answered
  };
  struct Copy {
    SnapshotName snapshot;
    std::uint32_t from = 0, to = 0;
    std::uint64_t question = 0;    ///< of its gathering; 0: the second copy of what was just kept
    bool again = false;            ///< it is sent for the second time
    std::optional<Time> due = {};  ///< to be sent again, or given up
  };
  using Id = std::uint64_t;
  void begin(Gathering gathering);
  void order(const Copy& copy);
  void order_missing(std::uint64_t question);
  [[nodiscard]] bool wanted(const Gathering& gathering, const SnapshotName& name) const;
  /// It is whole, or (with a problem) given up.
  void finish(Id copy, const std::string& problem);
  void fail(Id copy, const std::string& problem);
  void complete(std::uint64_t question);

  std::uint32_t ranks_each_;
  Handler handler_;
  Log& log_;
  Time now_{};
  std::set<std::uint32_t> live_{0};
  std::uint64_t questions_ = 0;
  Id ids_ = 0;
  std::map<std::uint64_t, Gathering> gatherings_;  ///< by the question that was asked for it
  std::map<Id, Copy> copies_;                      ///< under way
};

}  // namespace troupe
