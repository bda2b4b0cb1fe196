#include "tools/launcher/snapshot_copies.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace troupe {
namespace {

std::string describe(const SnapshotName& name, std::uint32_t to) {
  return fmt::format("the copy of the snapshot of rank {} after step {} for node {}", name.rank.value(), name.step.value(), to);
}

bool among(const std::vector<SnapshotName>& names, const SnapshotName& name) { return std::ranges::find(names, name) != names.end(); }

}  // namespace

void SnapshotCopies::copy(const SnapshotName& snapshot) {
  const std::uint32_t node = snapshot.rank.value() / ranks_each_;
  if (live_.contains(node)) order({.snapshot = snapshot, .from = node, .to = *std::prev(live_.find(node))});
}

void SnapshotCopies::give_back(std::uint32_t node) { begin({.state = std::nullopt, .targets = {node}}); }

void SnapshotCopies::spread(const EpochOrigin& state, const std::set<std::uint32_t>& nodes, std::uint32_t number) {
  std::erase_if(gatherings_, [](const auto& entry) { return entry.second.state.has_value(); });
  std::erase_if(copies_, [this](const auto& entry) { return entry.second.question > 0 && !gatherings_.contains(entry.second.question); });
  Gathering gathering{.state = state, .targets = {}, .number = number};
  std::ranges::set_intersection(nodes, live_, std::inserter(gathering.targets, gathering.targets.end()));
  begin(std::move(gathering));
}

void SnapshotCopies::begin(Gathering gathering) {
  gathering.unanswered = live_;
  gathering.held.clear();
  const std::uint64_t question = ++questions_;
  gatherings_.emplace(question, std::move(gathering));
  for (const std::uint32_t node : std::set(live_)) handler_.ask(node, {question});
}

void SnapshotCopies::holds(std::uint32_t node, const HoldingsReport& report) {
  const auto found = gatherings_.find(report.question);
  if (found == gatherings_.end() || found->second.unanswered.erase(node) == 0) return;
  found->second.held[node] = report.snapshots;
  if (found->second.unanswered.empty()) order_missing(report.question);
}

bool SnapshotCopies::wanted(const Gathering& gathering, const SnapshotName& name) const {
  if (gathering.state) return name.slot == gathering.state->slot && name.epoch == gathering.state->epoch && name.step == gathering.state->step;
  return gathering.targets.contains(name.rank.value() / ranks_each_);
}

void SnapshotCopies::order_missing(std::uint64_t question) {
  Gathering& gathering = gatherings_.at(question);
  std::vector<Copy> missing;
  for (const auto& [holder, names] : gathering.held) {
    for (const SnapshotName& name : names) {
      if (!wanted(gathering, name)) continue;
      const std::uint32_t owner = name.rank.value() / ranks_each_;
      const auto owners = gathering.held.find(owner);
      const std::uint32_t from = owners != gathering.held.end() && among(owners->second, name) ? owner : holder;  // whoever kept it sends it
      for (const std::uint32_t to : gathering.targets) {
        const auto there = gathering.held.find(to);
        const bool ordered = std::ranges::any_of(missing, [&](const Copy& copy) { return copy.to == to && copy.snapshot == name; });
        if (!ordered && (there == gathering.held.end() || !among(there->second, name)))
          missing.push_back({.snapshot = name, .from = from, .to = to, .question = question});
      }
    }
  }
  gathering.missing = missing.size();
  if (missing.empty()) return complete(question);
  for (const Copy& copy : missing) order(copy);
}

void SnapshotCopies::order(const Copy& copy) {
  copies_.emplace(++ids_, copy);
  handler_.send(copy.from, {copy.snapshot, copy.to});
}

void SnapshotCopies::told(const CopyReport& report) {
  std::vector<Id> meant;  // one may be needed for two reasons
  for (const auto& [id, copy] : copies_)
    if (copy.snapshot == report.snapshot && copy.to == report.to) meant.push_back(id);
  for (const Id id : meant) {
    if (!copies_.contains(id)) continue;
    if (!report.problem.empty())
      fail(id, report.problem);
    else if (report.sent)
      copies_[id].due = now_ + arrives_within;
    else
      finish(id, {});
  }
}

/// The first time it is sent again, after a moment: whoever is to take it may just have come.
void SnapshotCopies::fail(Id id, const std::string& problem) {
  Copy& copy = copies_.at(id);
  if (copy.again) return finish(id, problem);
  copy.due = now_ + std::chrono::seconds{1};
  log_.warning(problem + "; it is sent again");
}

void SnapshotCopies::look(Time now) {
  now_ = now;
  std::vector<Id> due;
  for (const auto& [id, copy] : copies_)
    if (copy.due && *copy.due <= now) due.push_back(id);
  for (const Id id : due) {
    const auto found = copies_.find(id);
    if (found == copies_.end()) continue;
    Copy& copy = found->second;
    if (copy.again) {
      finish(id, describe(copy.snapshot, copy.to) + " has left twice, and did not come whole");
      continue;
    }
    copy.again = true;
    copy.due.reset();
    handler_.send(copy.from, {copy.snapshot, copy.to});
  }
}

void SnapshotCopies::finish(Id id, const std::string& problem) {
  const Copy copy = copies_.extract(id).mapped();
  if (copy.question == 0) return handler_.copied({.snapshot = copy.snapshot, .to = copy.to, .problem = problem});
  if (!problem.empty()) log_.warning(problem);
  const auto found = gatherings_.find(copy.question);
  if (found == gatherings_.end()) return;
  Gathering& gathering = found->second;
  if (problem.empty()) ++gathering.arrived;
  if (--gathering.missing == 0) complete(copy.question);
}

void SnapshotCopies::complete(std::uint64_t question) {
  const Gathering done = gatherings_.extract(question).mapped();
  if (done.state) return handler_.spread(done.number);
  handler_.given_back(*done.targets.begin(), done.arrived);
}

/// What was to come from it or to go there: the rest is asked anew.
void SnapshotCopies::gone(std::uint32_t node) {
  live_.erase(node);
  std::vector<Id> lost;
  for (const auto& [id, copy] : copies_)
    if (copy.question == 0 && (copy.from == node || copy.to == node)) lost.push_back(id);
  for (const Id id : lost) finish(id, fmt::format("{}: the agent of node {} is gone", describe(copies_[id].snapshot, copies_[id].to), node));
  const auto before = std::exchange(gatherings_, {});
  std::erase_if(copies_, [](const auto& entry) { return entry.second.question > 0; });
  for (auto [question, gathering] : before) {
    gathering.targets.erase(node);
    gathering.missing = gathering.arrived = 0;
    if (gathering.state || !gathering.targets.empty()) begin(std::move(gathering));
  }
}

}  // namespace troupe
