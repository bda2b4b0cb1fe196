#include "tools/launcher/other_hosts.hpp"

#include <fmt/format.h>

#include <utility>
#include <vector>

namespace troupe {
namespace {

constexpr std::chrono::seconds ask_again{1};  ///< whether ranks that have come may become members
constexpr std::uint32_t most_tries = 2;       ///< of an agent's ranks to become members: what fails each time disturbs the run

std::uint32_t node_of(Rank peer) { return peer == launcher_rank ? 0 : node_of_agent(peer); }

}  // namespace

OtherHosts::OtherHosts(const Options& options, Handler handler, Log& log)
    : options_(options), log_(log), hosts_(options.hosts, handler_of(std::move(handler)), log) {
  if (options.hosts.nodes == 1) return;
  courier_.emplace(launcher_rank, [this](const SnapshotCourier::News& news) { posted_.add([this, news] { told(news); }); });
  courier_->use_memory(options.memory);
}

RemoteHosts::Handler OtherHosts::handler_of(Handler handler) {
  return {.send = [this](std::uint32_t node, const std::string& order) { host_->order(node, order); },
          .ended = std::move(handler.ended),
          .fired = std::move(handler.fired),
          .stop = [this](const std::string& reason) { host_->request_stop(reason); },
          .lost = [this](Rank rank, const std::string& cause, Incarnation life) { host_->report_death(rank, cause, 0, life); },
          .copied =
              [this](const CopyReport& copy) {
                host_->report_copy({copy.snapshot.rank, copy.snapshot.slot, copy.snapshot.epoch, copy.snapshot.step, copy.problem});
              },
          .send_copy = [this](const CopyOrder& order) { courier_->send(order.snapshot, agent_rank(order.to)); },
          .held = [this] { return courier_->held(); },
          .spread = [this](std::uint32_t number) { host_->report_spread(number); },
          .returned = [this](std::uint32_t node) { returned_[node] = {}; }};
}

void OtherHosts::prepare(JobHostOptions& options) {
  if (options_.hosts.nodes == 1) return;
  options.nodes = options_.hosts.nodes;
  options.host_event = [this](const HostEvent& event) { posted_.add([this, event] { hosts_.take(event); }); };
  options.courier = &*courier_;
  RecoveryOptions& recovery = options.coordinator.recovery;
  if (options_.keeps_copies)
    recovery.copy_kept = [this](Rank rank, std::uint32_t slot, EpochId epoch, Step step) {
      if (!hosts_.hosts(rank)) return false;
      posted_.add([this, name = SnapshotName{rank, slot, epoch, step}] { hosts_.copy(name); });
      return true;
    };
  recovery.spread = [this](const EpochOrigin& state, const std::vector<Rank>& members, std::uint32_t number) {
    posted_.add([this, state, members, number] { hosts_.spread(state, members, number); });
  };
  recovery.forget_before = [this](EpochId before) {
    posted_.add([this, before] {
      hosts_.forget(before);
      courier_->forget(before, Rank{0}, options_.hosts.ranks_each);
    });
  };
  options.coordinator.changes.most_ranks = options_.hosts.nodes * options_.hosts.ranks_each;
  options.coordinator.changes.can_start = [this](Rank rank) { return hosts_.can_start(rank); };
}

void OtherHosts::told(const SnapshotCourier::News& news) {
  hosts_.copied({.snapshot = news.snapshot, .to = node_of(news.at), .sent = news.sent, .problem = news.problem});
}

void OtherHosts::look() {
  for (const auto& posted : posted_.take()) posted();
  hosts_.look(std::chrono::steady_clock::now());
  look_at_returned();
}

/// Ranks of a host that is there again join the run that has gone on without them: as soon as that may be.
void OtherHosts::look_at_returned() {
  const auto now = std::chrono::steady_clock::now();
  std::erase_if(returned_, [this](const auto& entry) { return !hosts_.can_start(Rank{entry.first * options_.hosts.ranks_each}); });
  for (auto& [node, state] : returned_) {
    if (state.asked || now < state.next) continue;
    state.asked = true;
    ask_to_join(node);
  }
}

void OtherHosts::ask_to_join(std::uint32_t node) {
  ChangeRequest change;
  change.join = options_.hosts.ranks_each;
  for (std::uint32_t i = 0; i < change.join; ++i) change.which.emplace_back(node * options_.hosts.ranks_each + i);
  change.by = fmt::format("the agent of node {}", node);
  change.answer = [this, node](const Result<Agreed>& agreed) {
    posted_.add([this, node, settled = agreed && agreed->change == 0, refusal = agreed ? std::string{} : agreed.error().message] {
      const auto found = returned_.find(node);
      if (found == returned_.end()) return;
      if (settled || (refusal.empty() && ++found->second.tries == most_tries)) return (void)returned_.erase(found);
      found->second.asked = false;
      if (refusal.empty()) found->second.told = true;  // from here on others tell of it
      found->second.next = std::chrono::steady_clock::now() + ask_again;
      if (!refusal.empty() && !std::exchange(found->second.told, true))
        log_.info(fmt::format("node {} is here again, and its ranks are to join the run; not yet: {}; this is asked every second", node, refusal));
    });
  };
  host_->request_change(std::move(change));
}

}  // namespace troupe
